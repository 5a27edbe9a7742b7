//! The ranks of a run, by the variables that `torchrun` sets.

use std::env;

use super::fault::Fault;

const RANK: &str = "RANK";
const WORLD_SIZE: &str = "WORLD_SIZE";
const LOCAL_RANK: &str = "LOCAL_RANK";
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";
/// Set to `True` by `torchrun` if it listens at `MASTER_PORT` itself.
const AGENT_LISTENS: &str = "TORCHELASTIC_USE_AGENT_STORE";

/// The largest number of ranks.
const MOST: usize = 1 << 16;

/// The place of a process among all processes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The number of this process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The number of this process on its machine, which is the number of its GPU.
    pub local_rank: usize,
    /// The name or address of the machine of rank 0.
    pub host: String,
    /// The port at which rank 0 waits for the others.
    pub port: u16,
}

impl World {
    /// The place that `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` name; `None` if there is neither `RANK` nor
    /// `WORLD_SIZE`, or one rank only.
    ///
    /// The port is the one after `MASTER_PORT` if `torchrun` listens there itself (`TORCHELASTIC_USE_AGENT_STORE=True`).
    ///
    /// # Errors
    /// [`Fault::Variable`].
    pub fn from_environment() -> Result<Option<Self>, Fault> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// The variables that make a process this rank.
    pub fn variables(&self) -> [(&'static str, String); 6] {
        [
            (RANK, self.rank.to_string()),
            (WORLD_SIZE, self.size.to_string()),
            (LOCAL_RANK, self.local_rank.to_string()),
            (MASTER_ADDR, self.host.clone()),
            (MASTER_PORT, self.port.to_string()),
            (AGENT_LISTENS, "False".to_owned()),
        ]
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Fault> {
        if get(RANK).is_none() && get(WORLD_SIZE).is_none() {
            return Ok(None);
        }
        let number = |variable: &'static str, least: usize, most: usize| {
            let value = get(variable);
            let known = value.as_ref().and_then(|value| value.parse().ok());
            known
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| Fault::Variable {
                    variable,
                    expected: format!("a number from {least} to {most}"),
                    got: value.map_or("nothing".to_owned(), |value| format!("`{value}`")),
                })
        };
        let size = number(WORLD_SIZE, 1, MOST)?;
        let rank = number(RANK, 0, size - 1)?;
        if size == 1 {
            return Ok(None);
        }
        let local_rank = number(LOCAL_RANK, 0, rank)?;
        let shift = match get(AGENT_LISTENS).as_deref() {
            Some("True") => 1,
            _ => 0,
        };
        let port = number(MASTER_PORT, 1, usize::from(u16::MAX) - shift)? + shift;
        let host = get(MASTER_ADDR).filter(|host| !host.is_empty());
        Ok(Some(Self {
            rank,
            size,
            local_rank,
            host: host.ok_or_else(|| Fault::Variable {
                variable: MASTER_ADDR,
                expected: "the name or address of the machine of rank 0".to_owned(),
                got: "nothing".to_owned(),
            })?,
            // The range above is that of the type.
            port: u16::try_from(port).unwrap_or(u16::MAX),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<World>, String> {
        let get = |name: &str| {
            let found = variables.iter().rev().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        World::from_variables(get).map_err(|fault| fault.to_string())
    }

    const GOOD: [(&str, &str); 5] = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node-0"),
        ("MASTER_PORT", "29500"),
    ];

    #[test]
    fn variables_of_torchrun_are_read_and_written() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("MASTER_PORT", "x"), ("LOCAL_RANK", "7")]), Ok(None));
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None));
        let world = read(&GOOD).unwrap().unwrap();
        let expected = World {
            rank: 5,
            size: 8,
            local_rank: 1,
            host: "node-0".to_owned(),
            port: 29500,
        };
        assert_eq!(world, expected);
        let written = world.variables();
        let written = written.each_ref().map(|(name, value)| (*name, &**value));
        assert_eq!(read(&written), Ok(Some(world)));
    }

    #[test]
    fn the_port_is_the_next_one_where_torchrun_listens_itself() {
        let mut all = GOOD.to_vec();
        all.push(("TORCHELASTIC_USE_AGENT_STORE", "True"));
        assert_eq!(read(&all).unwrap().unwrap().port, 29501);
        all.push(("MASTER_PORT", "65535"));
        assert!(read(&all).unwrap_err().contains("from 1 to 65534"));
    }

    #[test]
    fn other_values_are_refused_with_their_name() {
        for (name, value, expected) in [
            ("RANK", "8", "RANK: expected a number from 0 to 7, got `8`"),
            ("RANK", "-1", "got `-1`"),
            (
                "WORLD_SIZE",
                "0",
                "WORLD_SIZE: expected a number from 1 to 65536, got `0`",
            ),
            ("WORLD_SIZE", "two", "got `two`"),
            (
                "LOCAL_RANK",
                "6",
                "LOCAL_RANK: expected a number from 0 to 5, got `6`",
            ),
            (
                "MASTER_ADDR",
                "",
                "MASTER_ADDR: expected the name or address",
            ),
            (
                "MASTER_PORT",
                "0",
                "MASTER_PORT: expected a number from 1 to 65535, got `0`",
            ),
            ("MASTER_PORT", "65536", "got `65536`"),
        ] {
            let mut all = GOOD.to_vec();
            all.push((name, value));
            let error = read(&all).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for missing in [
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
        ] {
            let all = GOOD.iter().filter(|(name, _)| *name != missing).copied();
            let error = read(&all.collect::<Vec<_>>()).unwrap_err();
            assert!(
                error.contains(&format!("{missing}: ")) && error.contains("got nothing"),
                "{error}"
            );
        }
    }
}
