//! The names of kernels on pages of plans. `compare` compares the names of each of its cases with what runs; here are
//! the choices between kernels that a page must show, and runs in two stages.

use flashcliff::cuda::MatmulPrecision;
use flashcliff_network::tokens::{Channels, Geometry};
use flashcliff_network::{Keep, Machine, Rows};

use crate::blocks::{Block, signature};
use crate::compare::{Case, There, Whole, assert_same, compare_kernels};
use crate::transformers::case;
use crate::trials::Tests;

/// Channels that are whole units, so that products leave out zeros and steps run in one kernel.
const WHOLE: Channels = Channels::new(8, 8);
/// Channels that are none.
const ODD: Channels = Channels::new(4, 12);
const ROWS: Rows = Rows::new(6, 7);
/// A sequence for which no multiprocessor has room.
const LONG: Rows = Rows::new(1, 3000);

pub(crate) fn add(tests: &mut Tests) {
    tests.add("kernels::two_stages", || {
        for precision in [MatmulPrecision::Highest, MatmulPrecision::Tf32] {
            let case = of(WHOLE, ROWS);
            let whole = Whole::new::<f32>(&case, Keep::All);
            let mut there = There::<f32>::in_two_stages(&whole, precision);
            compare_kernels(&format!("{precision}"), &mut there);
        }
    });
    tests.add("kernels::channels_without_units", || {
        let case = of(ODD, ROWS);
        let whole = Whole::new::<f32>(&case, Keep::All);
        let mut there = There::<f32>::new(&whole, MatmulPrecision::Tf32);
        compare_kernels("odd channels", &mut there);
    });
    tests.add("kernels::a_list_launches_nothing", || {
        let case = of(WHOLE, ROWS);
        let whole = Whole::new::<f32>(&case, Keep::All);
        let mut there = There::<f32>::new(&whole, MatmulPrecision::Tf32);
        let before = there.eager();
        assert_eq!(there.listed(), there.listed());
        // A kernel at addresses where nothing lies would be an error from now on.
        there.stream.context().synchronize().unwrap();
        assert_same(&there.eager(), &before, "after a list");
    });
    tests.add("kernels::pages_show_the_choices", || {
        let tf32 = MatmulPrecision::Tf32;
        // Products of tokens: without zeros, or as a whole.
        let backward = page(WHOLE, ROWS, tf32, true);
        expect(
            &backward,
            &["fc_block_sparse_product", "fc_block_sparse_weights"],
            &["chain_kernel<"],
        );
        let highest = page(WHOLE, ROWS, MatmulPrecision::Highest, true);
        expect(&highest, &["cublasLtMatmul<highest>"], &["fc_block_sparse"]);
        let advice = "faster on a GPU: products have the precision highest";
        expect(&highest, &[advice], &[]);
        // Attention: whole sequences in a multiprocessor, or tiles of queries.
        let short = page(WHOLE, ROWS, tf32, false);
        expect(
            &short,
            &["fc_attention_whole_forward"],
            &["fc_attention_forward"],
        );
        let long = page(WHOLE, LONG, tf32, false);
        expect(
            &long,
            &["fc_attention_forward", "fc_item_merge"],
            &["fc_attention_whole"],
        );
        // Steps: in one kernel, or each by itself.
        expect(&short, &["chain_kernel<16 rows: "], &[]);
        let odd = page(Channels::new(12, 8), ROWS, tf32, false);
        let in_chains = |page: &str| {
            let mut chains = page.split("chain_kernel<").skip(1);
            chains.any(|rest| {
                let parts = rest.split('>').next().unwrap();
                parts.split([' ', ',']).any(|part| part == "product")
            })
        };
        assert!(in_chains(&short) && !in_chains(&odd), "{odd}");
        let advice = "channels are kernels by themselves: with multiples of 8";
        assert!(odd.contains(advice) && !short.contains(advice), "{odd}");
    });
    tests.add("kernels::a_page_has_times_and_the_device", || {
        let case = of(WHOLE, ROWS);
        let whole = Whole::of_values::<f32>(&case);
        let there = There::<f32>::new(&whole, MatmulPrecision::Tf32);
        let machine = Machine {
            bytes_per_second: 1e12,
            flops_per_second: 1e13,
            seconds_per_call: 1e-6,
        };
        let page = there.gpu.explain_on(&machine).unwrap();
        let first = page.lines().next().unwrap();
        assert!(first.ends_with(" with products in tf32"), "{page}");
        assert!(
            page.contains("modelled ") && page.contains("      kernels: "),
            "{page}"
        );
    });
}

fn of(channels: Channels, rows: Rows) -> Case {
    // So few features of a head that a multiprocessor has room for a short sequence.
    let own = Block {
        channels,
        ..Block::of(Geometry::of(signature(2, 0, 0)))
    };
    case(own, rows)
}

/// The page of a plan in `f32`.
fn page(channels: Channels, rows: Rows, precision: MatmulPrecision, gradients: bool) -> String {
    let case = of(channels, rows);
    let whole = match gradients {
        true => Whole::new::<f32>(&case, Keep::All),
        false => Whole::of_values::<f32>(&case),
    };
    There::<f32>::new(&whole, precision).gpu.explain().unwrap()
}

fn expect(page: &str, there: &[&str], not_there: &[&str]) {
    for name in there {
        assert!(page.contains(name), "no {name}:\n{page}");
    }
    for name in not_there {
        assert!(!page.contains(name), "{name}:\n{page}");
    }
}
