//! A table of misuse: command lines, and the errors that the program must report.
//!
//! Every row is a command line with the files that it finds. The program must end with the status of the row, and with an error that holds
//! the phrases of the row: what was expected, what came. It must not panic, must not print results, and must leave every file as it was.
//!
//! * `row` - the contents of a row, and running one.
//! * `usage`, `tensors`, `files`, `training`, `trained` - the rows.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod row;
mod tensors;
mod trained;
mod training;
mod usage;

use row::Row;

fn table() -> Vec<&'static Row> {
    let parts = [
        usage::ROWS,
        tensors::ROWS,
        files::ROWS,
        training::ROWS,
        trained::ROWS,
    ];
    parts.into_iter().flatten().collect()
}

#[test]
fn every_row_of_the_table() {
    let table = table();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(row) =
                    table.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    if let Err(failure) = row.run() {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {} rows:\n{}",
        failures.len(),
        table.len(),
        failures.join("\n")
    );
}

#[test]
fn the_table_is_long_and_no_row_is_there_twice() {
    let table = table();
    assert!(table.len() >= 100, "{} rows", table.len());
    for (position, row) in table.iter().enumerate() {
        let again = table[..position].iter().any(|other| other.same_as(row));
        assert!(!again, "twice: {}", row.done);
    }
}

/// The runner must complain about a run that succeeds, a wrong status and a missing phrase.
#[test]
fn a_row_can_fail() {
    let good = usage::ROWS[0];
    good.run().unwrap();
    for bad in [
        Row { status: 1, ..good },
        Row {
            says: &["no such phrase"],
            ..good
        },
        Row {
            done: "info",
            ..good
        },
    ] {
        bad.run().unwrap_err();
    }
}
