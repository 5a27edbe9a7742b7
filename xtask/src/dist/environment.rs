//! A Python environment without Rust, a C compiler and the repository, in which the wheel is installed from an index and trains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::report::{Report, name};
use crate::{Error, command};

/// The programs that must not be on the path.
const ABSENT: [&str; 9] = [
    "cargo", "rustc", "nvcc", "maturin", "cc", "c++", "gcc", "g++", "clang",
];
/// From the start of `pip install`, with PyTorch there, to the first training step of the first program of the README.
const LONGEST: Duration = Duration::from_secs(20);
/// What `flashcliff info` says of algebras whose programs CPUs interpret. A wheel compiles the programs of all algebras.
const INTERPRETED: &str = "no compiled kernels";
/// Says which way calls of operators go.
const WAY: &str = "import flashcliff.functional; print(flashcliff.build_info()['calls'])";

pub(super) fn check(
    wheel: &Path,
    with_torch: Option<&Path>,
    is_compiled: bool,
    source: &Path,
    work: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let folder = work.join("environment");
    let base = with_torch.unwrap_or(Path::new("python3"));
    let mut make = Command::new(base);
    make.args(["-m", "venv"]).arg(&folder);
    command::output(&mut make).map_err(Error::pip)?;
    let environment = Environment::new(folder, work)?;
    if let Some(name) = ABSENT
        .iter()
        .find(|name| environment.programs.join(name).exists())
    {
        report.fault(format!(
            "expected an environment without {name}, but it has one"
        ));
    }
    match with_torch {
        Some(python) => environment.see_packages_of(python)?,
        None => drop(command::output(&mut environment.pip(&["torch"]))?),
    }
    let index = index(wheel, work)?;
    let mut pip = environment.pip(&["--no-deps", "--no-cache-dir", "flashcliff"]);
    pip.args(["--index-url", &format!("file://{}", index.display())]);
    let (_, install) = timed(pip.env_remove("PIP_FIND_LINKS"))?;
    let program = first_program(&source.join(README))?;
    let (_, first) = timed(&mut environment.python(&["-c", &program]))?;
    match install + first <= LONGEST {
        true => report.say(format!(
            "without a compiler: `pip install flashcliff` from an index {:.1} s, the first training step of the README {:.1} s",
            install.as_secs_f64(),
            first.as_secs_f64()
        )),
        false => report.fault(format!(
            "expected `pip install flashcliff` and the first training step of the README within {LONGEST:?}, got {install:?} and {first:?}"
        )),
    }
    let (way, _) = timed(&mut environment.python(&["-c", WAY]))?;
    match way.starts_with("compiled, from the wheel") == is_compiled {
        true => report.say(format!("calls of operators: {}", way.trim())),
        false => report.fault(format!(
            "expected compiled calls of operators from the wheel, got {}",
            way.trim()
        )),
    }
    let (place, _) =
        timed(&mut environment.python(&["-c", "import flashcliff; print(flashcliff.__file__)"]))?;
    if !Path::new(place.trim()).starts_with(&environment.folder) {
        report.fault(format!(
            "expected the package in {}, got {}",
            environment.folder.display(),
            place.trim()
        ));
    }
    let (said, _) = timed(&mut environment.program("flashcliff", &["info"]))?;
    match said.lines().find(|line| line.starts_with("version: ")) {
        Some(line) => report.say(format!("the command `flashcliff info`: {line}")),
        None => report.fault(format!(
            "expected the version of the wheel from `flashcliff info`, got {said}"
        )),
    }
    if let Some(line) = said.lines().find(|line| line.contains(INTERPRETED)) {
        report.fault(format!(
            "expected compiled kernels of all algebras, got {}",
            line.trim()
        ));
    }
    match timed(&mut environment.python(&["-m", "flashcliff"])) {
        Ok((_, train)) => report.say(format!(
            "in an environment without Rust: `pip install` of the wheel {:.1} s, `python -m flashcliff`, which trains a network, \
             {:.1} s",
            install.as_secs_f64(),
            train.as_secs_f64()
        )),
        Err(Error::Tool { output, .. }) => report.fault(format!("the wheel does not train: {output}")),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The page of the package that users see first.
const README: &str = "crates/flashcliff-py/README.md";

/// The steps of its first program that trains.
const STEPS: &str = "range(200)";

/// An index as PyPI's, of the wheel alone.
fn index(wheel: &Path, work: &Path) -> Result<PathBuf, Error> {
    let folder = work.join("index/flashcliff");
    fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
    let file = name(wheel);
    fs::copy(wheel, folder.join(&file)).map_err(Error::at(wheel))?;
    let page = folder.join("index.html");
    fs::write(
        &page,
        format!("<!DOCTYPE html><a href=\"{file}\">{file}</a>"),
    )
    .map_err(Error::at(&page))?;
    Ok(work.join("index"))
}

/// The first program of Python in a page that trains, up to its first step.
fn first_program(page: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(page).map_err(Error::at(page))?;
    let blocks = text.split("```python\n").skip(1);
    let mut programs = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let program = programs.find(|program| program.contains(STEPS));
    let program = program.ok_or_else(|| Error::Data {
        path: page.to_owned(),
        expected: format!("a program of Python that trains, with {STEPS}"),
    })?;
    Ok(program.replace(STEPS, "range(1)"))
}

/// An environment of Python.
struct Environment {
    folder: PathBuf,
    /// The folder of its programs, the only one on the path.
    programs: PathBuf,
    /// An empty folder, from which programs are run.
    elsewhere: PathBuf,
}

impl Environment {
    fn new(folder: PathBuf, work: &Path) -> Result<Self, Error> {
        let folder = folder.canonicalize().map_err(Error::at(&folder))?;
        let elsewhere = work.join("elsewhere");
        fs::create_dir_all(&elsewhere).map_err(Error::at(&elsewhere))?;
        Ok(Self {
            programs: folder.join("bin"),
            folder,
            elsewhere,
        })
    }

    /// A call of Python that knows nothing of this process: no variables, another folder, no other programs.
    fn python(&self, arguments: &[&str]) -> Command {
        self.program("python", arguments)
    }

    /// The same for any program of the environment.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.programs.join(name));
        program.env_clear().current_dir(&self.elsewhere);
        program
            .env("PATH", &self.programs)
            .env("HOME", &self.elsewhere);
        program.args(arguments);
        program
    }

    /// A call of `pip install`. It keeps the variables that say how packages are downloaded.
    fn pip(&self, arguments: &[&str]) -> Command {
        let mut pip = Command::new(self.programs.join("python"));
        pip.current_dir(&self.elsewhere);
        pip.args(["-m", "pip", "install", "--quiet"])
            .args(arguments);
        pip.env("PATH", &self.programs)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        pip
    }

    /// Lets the environment see the packages of another Python, after its own.
    fn see_packages_of(&self, python: &Path) -> Result<(), Error> {
        const FOLDER: [&str; 2] = [
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ];
        let theirs = command::output(Command::new(python).args(FOLDER)).map_err(Error::pip)?;
        let ours = command::output(&mut self.python(&FOLDER))?;
        let path = Path::new(ours.trim()).join("others.pth");
        fs::write(&path, theirs).map_err(Error::at(&path))
    }
}

fn timed(command: &mut Command) -> Result<(String, Duration), Error> {
    let start = Instant::now();
    let output = command::output(command)?;
    Ok((output, start.elapsed()))
}
