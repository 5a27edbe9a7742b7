//! Errors that papers report.

/// The error of one method, as its paper or a later one reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reported {
    /// Name of the model.
    pub method: &'static str,
    /// Mean squared error on the test set, of networks that were trained with [`PUBLISHED`](super::PUBLISHED) sizes.
    pub error: f64,
    /// Half the range that the paper gives.
    pub deviation: Option<f64>,
    /// Trainable parameters by count, where the model was built again.
    pub parameters: Option<usize>,
    /// The paper that reports it.
    pub paper: &'static str,
    /// arXiv identifier of the paper.
    pub arxiv: &'static str,
    /// The file in which the number was read, in the repository of the authors. Numbers without one are quoted, and
    /// were not compared with the paper.
    pub read_in: Option<&'static str>,
}

const EGNN: Reported = Reported {
    method: "EGNN",
    error: 0.0070,
    deviation: None,
    parameters: None,
    paper: "Satorras, Hoogeboom and Welling, EGNN, ICML 2021",
    arxiv: "2102.09844",
    read_in: None,
};

const fn beside_egnn(method: &'static str, error: f64) -> Reported {
    Reported {
        method,
        error,
        ..EGNN
    }
}

pub(crate) const CGENN: Reported = Reported {
    method: "CGENN",
    error: 0.0039,
    deviation: Some(0.0001),
    parameters: Some(134_625),
    paper: "Ruhe, Brandstetter and Forré, CGENN, NeurIPS 2023",
    arxiv: "2305.11141",
    read_in: None,
};

pub(crate) const MVN: Reported = Reported {
    method: "MVN",
    error: 0.0035,
    deviation: None,
    parameters: Some(144_657),
    paper: "Liu, Ruhe and Forré, Multivector Neurons, 2024",
    arxiv: "2406.04052",
    read_in: Some("congliuUvA/Multivector-Neurons/README.md"),
};

/// Errors of papers, the largest first. EGNN's own table has 0.0071 for EGNN, the tables of SEGNN and CGENN 0.0070.
/// The training budgets differ: EGNN has 10,000 epochs of batches of 100, CGENN and MVN have 131,072 steps.
pub const REPORTED: [Reported; 8] = [
    beside_egnn("SE(3)-Transformer", 0.0244),
    beside_egnn("TFN", 0.0155),
    beside_egnn("NMP", 0.0107),
    beside_egnn("Radial field", 0.0104),
    EGNN,
    Reported {
        method: "SEGNN",
        error: 0.0043,
        paper: "Brandstetter et al., SEGNN, ICLR 2022",
        arxiv: "2110.02905",
        ..EGNN
    },
    CGENN,
    MVN,
];
