//! The maps of a layer as products of matrices with ranges of blades.

use cayley::EquivariantMap;

/// Entries of a map whose outputs are consecutive blades, whose inputs are too, and whose factors are equal.
///
/// Blades are the outermost axis of tensors, so a term is one matrix product over `blades * rows` rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) output: usize,
    pub(super) input: usize,
    pub(super) blades: usize,
    pub(super) map: usize,
    pub(super) factor: f64,
}

/// The terms of maps. Terms that copy a blade to itself come first: together they write every output, and every input,
/// exactly once, and the others add to it.
pub(super) fn of(maps: &[EquivariantMap], unit: bool) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for (map, entries) in maps.iter().map(|map| &map.entries).enumerate() {
        let norm = if unit {
            (entries.len() as f64).sqrt()
        } else {
            1.0
        };
        let mut entries = entries.clone();
        entries.sort_by_key(|entry| entry.output);
        let mut last: Option<Term> = None;
        for entry in entries {
            let factor = f64::from(entry.sign) / norm;
            match &mut last {
                Some(term)
                    if (entry.output, entry.input)
                        == (term.output + term.blades, term.input + term.blades)
                        && factor == term.factor =>
                {
                    term.blades += 1;
                }
                _ => {
                    terms.extend(last.replace(Term {
                        output: entry.output,
                        input: entry.input,
                        blades: 1,
                        map,
                        factor,
                    }));
                }
            }
        }
        terms.extend(last);
    }
    terms.sort_by_key(|term| term.output != term.input);
    terms
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Group, Signature};

    use super::of;

    #[test]
    fn terms_are_the_entries_of_maps() {
        for (name, group) in [
            ("cl301", Group::Pin),
            ("cl130", Group::Spin),
            ("cl410", Group::Pin),
        ] {
            let algebra = Algebra::new(name.parse::<Signature>().expect("a signature"));
            let maps = algebra.equivariant_maps(group).expect("maps are known");
            let terms = of(&maps, false);
            let count = |of: usize| maps[of].entries.len();
            for (map, found) in maps.iter().enumerate() {
                let blades = terms.iter().filter(|term| term.map == map);
                assert_eq!(blades.map(|term| term.blades).sum::<usize>(), count(map));
                for entry in &found.entries {
                    let term = terms.iter().find(|term| {
                        term.map == map
                            && (term.output..term.output + term.blades).contains(&entry.output)
                    });
                    let term = term.expect("every entry is in a term");
                    assert_eq!(entry.output - term.output, entry.input - term.input);
                    assert_eq!(term.factor, f64::from(entry.sign));
                }
            }
            let first = terms.iter().take_while(|term| term.output == term.input);
            let covered: usize = first.map(|term| term.blades).sum();
            assert_eq!(covered, algebra.blade_count());
        }
    }
}
