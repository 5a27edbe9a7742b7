//! Compiles sources to object files, several at a time, and only if something changed.
//!
//! Each file is compiled by a separate `cc::Build`. Given two or more files, `cc` makes relocatable device code, which is linked a second
//! time into one module that loads as a whole. Kernels need nothing of other files, and so are better off without it. Also, files that were
//! compiled before a later one failed are kept.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, thread};

use build_support::{Ingredients, Source};
use jobserver::{Acquired, Client};

/// One source file.
struct Unit {
    source: PathBuf,
    build: cc::Build,
    ingredients: Ingredients,
    /// A file that names the object file, and what it was made from.
    stamp: PathBuf,
}

/// An event while files are compiled.
enum Event {
    /// Cargo lets one more process run.
    Token(Acquired),
    /// A thread has no file left to begin.
    Finished,
}

/// The files that are still to be compiled, and the results of the others.
struct Work {
    units: Vec<Unit>,
    objects: Vec<PathBuf>,
    failure: Option<String>,
}

/// Compiles all sources in two folders, with the flags of each kind. Returns the object files. Both kinds include files of
/// `folder`.
pub(crate) fn all(
    build: &cc::Build,
    flags: impl Fn(Source) -> Vec<String>,
    folder: &Path,
    generated: &Path,
) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let stamps = Path::new(&env::var("OUT_DIR")?).join("stamps");
    let mut kinds = Vec::new();
    for kind in Source::ALL {
        let mut build = build.clone();
        build.flags(flags(kind));
        let command = command(&build)?;
        kinds.push((kind, build, command));
    }
    let mut units = Vec::new();
    for root in [folder, generated] {
        for name in build_support::cuda_sources(root)? {
            let source = root.join(&name);
            let wanted = Source::of(&name.to_string_lossy())?;
            let found = kinds.iter().find(|(kind, ..)| *kind == wanted);
            let (_, build, command) = found.ok_or("a source of no known kind")?;
            units.push(Unit {
                ingredients: Ingredients::of(command, &source, folder)?,
                stamp: stamps.join(name).with_extension("txt"),
                build: build.clone(),
                source,
            });
        }
    }
    let (mut objects, mut stale) = (Vec::new(), Vec::new());
    for unit in units {
        match unit.object() {
            Some(object) => objects.push(object),
            None => stale.push(unit),
        }
    }
    // Work is taken from the end. The files that take longest come first, so that no long one is begun last.
    stale.sort_by_key(|unit| unit.ingredients.bytes);
    let work = Mutex::new(Work {
        units: stale,
        objects,
        failure: None,
    });
    in_parallel(&work)?;
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    match work.failure {
        Some(failure) => Err(failure.into()),
        None => {
            let mut objects = work.objects;
            objects.sort();
            Ok(objects)
        }
    }
}

/// Everything that an object file depends on besides its source files.
fn command(build: &cc::Build) -> Result<Vec<OsString>, Box<dyn Error>> {
    let compiler = build.try_get_compiler()?;
    let mut command = vec![compiler.path().into()];
    command.extend(compiler.args().iter().cloned());
    for variable in ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"] {
        command.push(env::var_os(variable).unwrap_or_default());
    }
    // The toolkit may have been replaced at the same path.
    let changed = fs::metadata(compiler.path())?.modified()?;
    command.push(format!("{changed:?}").into());
    Ok(command)
}

/// Compiles until no file is left, with as many processes as cargo allows.
fn in_parallel(work: &Mutex<Work>) -> Result<(), Box<dyn Error>> {
    let jobs: usize = env::var("NUM_JOBS")?.parse()?;
    // SAFETY: cargo gives the descriptors that its variable names to build scripts for this purpose, and nothing in this
    // program has opened or closed any.
    let client = unsafe { Client::from_env() };
    let client = client.map_or_else(|| Client::new(jobs.saturating_sub(1)), Ok)?;
    let (sender, events) = mpsc::channel();
    let tokens = sender.clone();
    let helper = client.into_helper_thread(move |token| {
        // Without a token there is one process less. Nobody receives it any more when all is done.
        if let Ok(token) = token {
            let _ = tokens.send(Event::Token(token));
        }
    })?;
    let units = lock(work, |work| work.units.len());
    thread::scope(|scope| {
        // One process is allowed without a token: this script itself.
        let first = sender.clone();
        scope.spawn(move || compile(work, &first));
        for _ in 1..jobs.min(units) {
            helper.request_token();
        }
        for event in events {
            match event {
                Event::Token(token) => {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        compile(work, &sender);
                        drop(token);
                    });
                }
                Event::Finished => break,
            }
        }
    });
    Ok(())
}

/// Compiles until no file is left or one failed.
fn compile(work: &Mutex<Work>, events: &Sender<Event>) {
    while let Some(unit) = lock(work, |work| work.units.pop()) {
        let result = unit.compile();
        lock(work, |work| match result {
            Ok(object) => work.objects.push(object),
            Err(error) => {
                work.units.clear();
                work.failure.get_or_insert(error.to_string());
            }
        });
    }
    // Nobody receives this from the second thread that sends it.
    let _ = events.send(Event::Finished);
}

fn lock<T>(work: &Mutex<Work>, f: impl FnOnce(&mut Work) -> T) -> T {
    // Every change is complete in itself, so a panic elsewhere leaves no half-done change.
    f(&mut work.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Unit {
    /// The object file, if it exists and was made from the current ingredients.
    fn object(&self) -> Option<PathBuf> {
        let stamp = fs::read_to_string(&self.stamp).ok()?;
        let (fingerprint, object) = stamp.split_once('\n')?;
        let is_same = fingerprint == self.ingredients.fingerprint.to_string();
        let object = PathBuf::from(object);
        (is_same && object.is_file()).then_some(object)
    }

    fn compile(&self) -> Result<PathBuf, Box<dyn Error>> {
        // If anything fails from here on, the stamp must not vouch for an unfinished object file.
        if self.stamp.exists() {
            fs::remove_file(&self.stamp)?;
        }
        let mut build = self.build.clone();
        // Cargo's metadata was printed once, when the command was asked for.
        build.cargo_metadata(false).file(&self.source);
        let objects = build.try_compile_intermediates()?;
        let object = objects.into_iter().next().ok_or("cc made no object file")?;
        if let Some(parent) = self.stamp.parent() {
            fs::create_dir_all(parent)?;
        }
        let path = object.to_str().ok_or("the build folder is no valid text")?;
        let stamp = format!("{}\n{path}", self.ingredients.fingerprint);
        fs::write(&self.stamp, stamp)?;
        Ok(object)
    }
}
