//! Section of momenta that are stored in few bits: what their invariants lose.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small};
use crate::Error;

/// The boosts that are shown, by direction and rapidity.
const BOOSTS: [(&str, f64); 4] = [
    ("beam", 0.0),
    ("beam", 3.0),
    ("random", 3.0),
    ("across", 3.0),
];

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "momenta-of-few-bits.json")?;
    Ok(format!(
        "\
## Momenta of few bits, simulated

Squared masses of jets whose particles' momenta are stored as tokens would be, by type: median of the relative errors, for boosts of the jets in three
directions. float16 and float8_e4m3 have a scale, a power of two, for each particle. The null basis has the axis of the beam: `E + p_z` and
`E - p_z` are stored in place of `E` and `p_z`. No kernel stores tokens so ([record 145](../docs/decisions/145-no-null-basis.md)).

{momenta}
{source}",
        momenta = momenta(&data)?,
        source = data.source_with_commit(
            "any, f64 but for what is stored",
            "python3 benches/peers/precision_momenta.py --commit HASH"
        )?,
    ))
}

fn momenta(data: &Data) -> Result<String, Error> {
    let ways = ["bf16", "bf16-null", "f16", "f16-null", "fp8", "fp8-null"];
    let mut heads = vec!["direction", "rapidity"];
    heads.extend(ways);
    let mut table = Table::new(&heads);
    let rows = data.root().get("momenta")?.list()?;
    for (direction, rapidity) in BOOSTS {
        let mut row = vec![direction.to_owned(), digits(rapidity)];
        for way in ways {
            let mut found = None;
            for own in &rows {
                let is_it = own.get("direction")?.text()? == direction
                    && own.get("rapidity")?.number()? == rapidity
                    && own.get("tokens")?.text()? == way;
                if is_it {
                    found = own.get("jets")?.numbers()?.first().copied();
                }
            }
            row.push(found.map(small).unwrap_or_default());
        }
        table.row(&row);
    }
    Ok(table.text())
}
