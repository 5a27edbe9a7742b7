//! Tests of processes: environment variables, threads that the system refuses, forks.
//!
//! A test runs this program again as a child with a role and an environment. The output of the child is its report.

use std::env;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Operator, Signature, Tensor, environment, threads};
use libtest_mimic::{Arguments, Failed, Trial};

/// The variable that makes this program a child.
const ROLE: &str = "FLASHCLIFF_TEST_ROLE";
/// The longest that a child may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A variable that asks for a larger stack than any address space has room for, so that every thread is refused.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "1125899906842624");

type Test = fn() -> Result<(), Failed>;

/// The names and values of environment variables.
type Variables<'v> = &'v [(&'v str, &'v str)];

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        match role.as_str() {
            "report" => report(),
            "set" => set(),
            "global" => global(),
            #[cfg(unix)]
            "fork" => forks::role(),
            #[cfg(unix)]
            "lonely" => forks::lonely(),
            role => panic!("no role {role}"),
        }
        return ExitCode::SUCCESS;
    }
    let tests: &[(&str, Test)] = &[
        ("values_that_mean_something", values_that_mean_something),
        ("values_that_mean_nothing", values_that_mean_nothing),
        ("too_many_threads", too_many_threads),
        ("no_thread_allowed", no_thread_allowed),
        ("numbers_that_are_set", numbers_that_are_set),
        ("the_pool_of_the_program", the_pool_of_the_program),
        #[cfg(unix)]
        ("forks_while_operators_run", forks::while_operators_run),
        #[cfg(unix)]
        ("forks_without_threads", forks::without_threads),
    ];
    let trials = tests.iter().map(|&(name, test)| Trial::test(name, test));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The output of a child. The child must succeed, and soon.
fn child(role: &str, variables: Variables<'_>) -> Result<String, Failed> {
    let mut command = Command::new(env::current_exe()?);
    for name in [
        "RAYON_NUM_THREADS",
        "OMP_NUM_THREADS",
        "FLASHCLIFF_SIMD",
        "RUST_MIN_STACK",
    ] {
        command.env_remove(name);
    }
    command.env(ROLE, role).envs(variables.iter().copied());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(format!("{role} with {variables:?} hangs").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text)?;
    }
    match status.success() {
        true => Ok(text),
        false => Err(format!("{role} with {variables:?}: {status}\n{text}").into()),
    }
}

fn expect(text: &str, part: &str) -> Result<(), Failed> {
    match text.contains(part) {
        true => Ok(()),
        false => Err(format!("expected `{part}` in:\n{text}").into()),
    }
}

fn algebra() -> Algebra {
    let mut shipped = Algebra::shipped();
    let found = shipped.find(|algebra| algebra.signature() == Signature::of(3, 0, 0));
    found.expect("shipped")
}

fn operator() -> Operator {
    ops::sgp_norm(algebra(), &ProductOptions::default()).expect("shipped")
}

/// The sum of the result and gradients of a call that is large enough for many threads.
fn checksum(op: &Operator) -> Result<f64, flashcliff::Error> {
    let (batch, channels) = (512, 64);
    let x: Vec<f32> = (0..8 * batch * channels)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0)
        .collect();
    let w: Vec<f32> = (0..channels * 20).map(|i| (i % 7) as f32 / 7.0).collect();
    let x = Tensor::new(&x, &[8, batch, channels])?;
    let w = Tensor::new(&w, &[channels, 20])?;
    let inputs = [x, x, w];
    let o = op.evaluate(&inputs)?;
    let grads = op.gradients(&inputs, &o, o.tensor()?)?;
    let all = o.output.iter().chain(grads.iter().flatten());
    Ok(all.map(|&value| f64::from(value)).sum())
}

fn report() {
    println!("check {:?}", environment::check());
    match Algebra::new(Signature::of(3, 0, 0)) {
        Ok(_) => println!("algebra ok"),
        Err(error) => println!("algebra {error}"),
    }
    let choice = threads::choice();
    match &choice {
        Ok(choice) => println!("choice {} of {}", choice.count(), choice.source()),
        Err(error) => println!("choice {error}"),
    }
    // Operators check the variables of an algebra that was not made by `new`, too.
    let op = operator();
    match checksum(&op) {
        Ok(sum) => println!("operator {sum}"),
        Err(error) => println!("operator {error}"),
    }
    println!("tier {}", op.tier());
    println!("count {}", threads::count());
    println!("limit {}", threads::limit());
    match threads::start() {
        Ok(choice) => println!("start {} note {:?}", choice.count(), choice.note()),
        Err(error) => println!("start {error}"),
    }
    if let Ok(choice) = threads::choice() {
        println!("settled {} note {:?}", choice.count(), choice.note());
    }
}

/// The rest of the line of a report that begins with a word.
fn line<'t>(text: &'t str, word: &str) -> Result<&'t str, Failed> {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    found.ok_or_else(|| format!("expected a line `{word}` in:\n{text}").into())
}

fn values_that_mean_something() -> Result<(), Failed> {
    let cpus = std::thread::available_parallelism()?.to_string();
    let limit = 8 * cpus.parse::<usize>()?;
    // The variables, the number of threads, and the variable that decides.
    let (rayon, openmp) = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS");
    let rows: &[(Variables<'_>, &str, &str)] = &[
        (&[], &cpus, "the number of CPUs"),
        (&[(rayon, "3")], "3", rayon),
        (&[(rayon, " 3 ")], "3", rayon),
        (&[(rayon, "")], &cpus, "the number of CPUs"),
        (&[(rayon, "0")], &cpus, "the number of CPUs"),
        (&[(openmp, "2")], "2", openmp),
        (&[(openmp, "2,1")], "2", openmp),
        (&[(openmp, "")], &cpus, "the number of CPUs"),
        (&[(rayon, "3"), (openmp, "2")], "3", rayon),
        (&[(rayon, "0"), (openmp, "2")], "2", openmp),
        (&[(rayon, ""), (openmp, "2")], "2", openmp),
        (&[(rayon, "1")], "1", rayon),
    ];
    let sum = line(&child("report", &[])?, "operator")?.to_owned();
    for (variables, count, source) in rows {
        let text = child("report", variables)?;
        expect(&text, "algebra ok")?;
        expect(&text, &format!("choice {count} of {source}"))?;
        expect(&text, &format!("\ncount {count}\n"))?;
        expect(&text, &format!("\nlimit {limit}\n"))?;
        expect(&text, &format!("start {count} note None"))?;
        // The results are the same to the bit.
        expect(&text, &format!("operator {sum}\n"))?;
    }
    for value in ["scalar", " scalar "] {
        let text = child("report", &[("FLASHCLIFF_SIMD", value)])?;
        expect(&text, "algebra ok")?;
        expect(&text, "tier scalar")?;
    }
    Ok(())
}

fn values_that_mean_nothing() -> Result<(), Failed> {
    let numbers = [
        "x", "-1", "1.5", "+2", "0x2", "2 3", "1e3", "two", "٣", "2;3",
    ];
    let rayon = numbers
        .iter()
        .chain(&["2,1"])
        .map(|v| ("RAYON_NUM_THREADS", *v));
    let openmp = numbers.iter().chain(&["0", "2,", ",", "2,x", "2,0"]);
    let openmp = openmp.map(|v| ("OMP_NUM_THREADS", *v));
    let foreign = if cfg!(target_arch = "aarch64") {
        "avx2"
    } else {
        "neon"
    };
    let simd = ["sse9", "AVX2", "0", foreign, "avx2,scalar"].map(|v| ("FLASHCLIFF_SIMD", v));
    for (name, value) in rayon.chain(openmp).chain(simd) {
        // A correct variable beside it does not help.
        let other = match name {
            "OMP_NUM_THREADS" => "RAYON_NUM_THREADS",
            _ => "OMP_NUM_THREADS",
        };
        let text = child("report", &[(name, value), (other, "1")])?;
        let expected = match name {
            "FLASHCLIFF_SIMD" => "one of scalar",
            _ => "a whole number",
        };
        for who in ["algebra", "choice", "operator", "start"] {
            let said = line(&text, who)?;
            expect(
                said,
                &format!("the environment variable {name} must be {expected}"),
            )?;
            expect(said, &format!("got `{value}`"))?;
        }
        expect(line(&text, "check")?, "Err(Environment {")?;
    }
    Ok(())
}

fn too_many_threads() -> Result<(), Failed> {
    let limit = threads::limit().to_string();
    for value in ["100000", "99999999999999999999999999"] {
        for name in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"] {
            let text = child("report", &[(name, value)])?;
            expect(&text, &format!("\ncount {limit}\n"))?;
            let start = line(&text, "start")?;
            expect(start, &format!("{limit} note Some("))?;
            expect(
                start,
                &format!("threads asked for by {name}, {limit} used: at most 8 for each CPU"),
            )?;
        }
    }
    Ok(())
}

fn no_thread_allowed() -> Result<(), Failed> {
    let sum = line(&child("report", &[])?, "operator")?.to_owned();
    let text = child("report", &[NO_THREADS, ("RAYON_NUM_THREADS", "4")])?;
    expect(&text, &format!("operator {sum}\n"))?;
    expect(&text, "\ncount 1\n")?;
    expect(line(&text, "start")?, "cannot start 4 threads: ")?;
    expect(
        line(&text, "settled")?,
        "1 note Some(\"4 threads asked for by RAYON_NUM_THREADS, used: the calling thread alone",
    )?;
    let text = child("set", &[NO_THREADS])?;
    expect(&text, "5: cannot start 5 threads: ")?;
    expect(&text, &format!("operator {sum}\n"))
}

/// Sets several numbers in turn. All give the same result.
fn set() {
    for threads in [5, 1, 2, 0, 100_000] {
        match threads::set(threads) {
            Ok(choice) => println!(
                "{threads}: {} of {} {:?}",
                choice.count(),
                choice.source(),
                choice.note()
            ),
            Err(error) => println!("{threads}: {error}"),
        }
        match checksum(&operator()) {
            Ok(sum) => println!("count {} operator {sum}", threads::count()),
            Err(error) => println!("operator {error}"),
        }
    }
    let inner = threads::at_most(2, || {
        (threads::count(), threads::at_most(9, threads::count))
    });
    println!("at most {inner:?} then {}", threads::count());
}

fn numbers_that_are_set() -> Result<(), Failed> {
    let limit = threads::limit();
    let sum = line(&child("report", &[])?, "operator")?.to_owned();
    for variables in [&[][..], &[("OMP_NUM_THREADS", "3")]] {
        let text = child("set", variables)?;
        for threads in [5, 1, 2] {
            expect(
                &text,
                &format!(
                    "{threads}: {threads} of the program None\ncount {threads} operator {sum}\n"
                ),
            )?;
        }
        expect(
            &text,
            &format!("0: threads must be at least 1, got 0\ncount 2 operator {sum}\n"),
        )?;
        expect(
            &text,
            &format!("100000: {limit} of the program Some(\"100000 threads asked for"),
        )?;
        expect(&text, &format!("\ncount {limit} operator {sum}\n"))?;
        expect(&text, &format!("at most (2, 2) then {limit}"))?;
    }
    Ok(())
}

/// A program that has its own pools.
fn global() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool(3).build_global().expect("the first");
    println!("count {}", threads::count());
    let choice = threads::choice().expect("settled");
    println!("choice {} of {}", choice.count(), choice.source());
    let inner = pool(2).build().expect("two threads");
    println!("inner {}", inner.install(threads::count));
    let sums = [
        checksum(&operator()),
        inner.install(|| checksum(&operator())),
    ];
    println!("sums {sums:?}");
    threads::set(4).expect("four threads");
    println!(
        "set {} inner {}",
        threads::count(),
        inner.install(threads::count)
    );
}

fn the_pool_of_the_program() -> Result<(), Failed> {
    let sum = line(&child("report", &[])?, "operator")?.to_owned();
    let text = child("global", &[("OMP_NUM_THREADS", "1")])?;
    expect(&text, "count 3\nchoice 3 of rayon's global pool\ninner 2\n")?;
    expect(&text, &format!("sums [Ok({sum}), Ok({sum})]"))?;
    expect(&text, "set 4 inner 2")
}

#[cfg(unix)]
mod forks {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Forks while two other threads run operators and one changes their number; each fork computes.
    pub(super) fn role() {
        let op = operator();
        let wanted = checksum(&op).expect("fits");
        let done = AtomicBool::new(false);
        let until: u64 =
            env::var("FLASHCLIFF_TEST_SECONDS").map_or(5, |text| text.parse().expect("seconds"));
        let end = Instant::now() + Duration::from_secs(until);
        let forks = std::thread::scope(|scope| {
            let busy = || {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(checksum(&op), Ok(wanted));
                }
            };
            let restless = || {
                for threads in (1..5).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                    // `set` fails if the system allows no thread.
                    let _ = threads::set(threads);
                    std::hint::black_box(threads::choice()).expect("settled");
                }
            };
            let workers = [scope.spawn(busy), scope.spawn(busy), scope.spawn(restless)];
            let mut forks = 0;
            while Instant::now() < end {
                one(&op, wanted);
                forks += 1;
            }
            done.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().expect("no panic");
            }
            forks
        });
        println!("forks {forks}");
    }

    /// Forks once; the child must compute the same, in time.
    fn one(op: &Operator, wanted: f64) {
        // SAFETY: the child only computes, with an allocator that survives forks, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            let right = checksum(op) == Ok(wanted) && checksum(op) == Ok(wanted);
            // SAFETY: the call ends this process without running the exit handlers of its parent.
            unsafe { libc::_exit(if right { 0 } else { 3 }) };
        }
        let start = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: the process is a child of this one, and the pointer to its status is valid.
            let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
            if ended == child {
                assert_eq!(status, 0, "the child");
                return;
            }
            if start.elapsed() > Duration::from_secs(20) {
                // SAFETY: the process is a child of this one.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("a forked child hangs");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn while_operators_run() -> Result<(), Failed> {
        let text = child("fork", &[("RAYON_NUM_THREADS", "3")])?;
        let forks: usize = line(&text, "forks")?.parse()?;
        match forks >= 20 {
            true => Ok(()),
            false => Err(format!("expected at least 20 forks, got {forks}").into()),
        }
    }

    /// A process without threads but its first, and the children of such a process.
    pub(super) fn without_threads() -> Result<(), Failed> {
        let text = child("lonely", &[NO_THREADS, ("RAYON_NUM_THREADS", "4")])?;
        expect(&text, "forked once, then again")
    }

    /// Forks a process that may start no thread, and then forks the child.
    pub(super) fn lonely() {
        let op = operator();
        let wanted = checksum(&op).expect("fits");
        one(&op, wanted);
        // SAFETY: the same holds as in `one`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            one(&op, wanted);
            // SAFETY: the same holds as in `one`.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the process is a child of this one, and the pointer to its status is valid.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
        println!("forked once, then again");
    }
}
