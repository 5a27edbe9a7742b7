//! The kinds of CUDA sources: which code of which GPU a file is compiled to.

use crate::Error;

/// The kind of a source file, by which [`Architecture::flags`](crate::Architecture::flags) chooses its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Kernels that walk rows, and the kernels that are launched after them, with the special instructions of 90a.
    Rows,
    /// Kernels that are the same everywhere.
    Portable,
    /// Kernels that start beside the end of the kernel before them, by an instruction of 90, and are the same else.
    Dependent,
    /// Kernels in f64: machine code for 80 and 90 only, PTX for the rest.
    Double,
}

/// The kind of every source file. A star stands for any beginning of a name; the first entry that fits counts.
const KINDS: [(&str, Source); 29] = [
    // Few GPUs compute in f64 at speed; the others compile the portable code when a program starts.
    ("*_f64.cu", Source::Double),
    // Row sums go through clusters, and rows are copied ahead by the copy engine: instructions of 90a.
    ("sgp_f32.cu", Source::Rows),
    ("steerable_f32.cu", Source::Rows),
    ("layers_f32.cu", Source::Rows),
    // The sum of partial gradients starts beside the end of the kernel before it: an instruction of 90.
    ("launch.cu", Source::Rows),
    // Each thread reads, computes and writes its own lanes.
    ("points_f32.cu", Source::Portable),
    // Each CTA has its own rows, and brings them with plain loads.
    ("blocks_f32.cu", Source::Portable),
    ("fully_connected.cu", Source::Portable),
    ("linear.cu", Source::Portable),
    ("linear_few.cu", Source::Portable),
    ("floor.cu", Source::Portable),
    ("adam.cu", Source::Portable),
    ("adam_list.cu", Source::Portable),
    ("steps.cu", Source::Portable),
    ("dropout.cu", Source::Portable),
    ("segments.cu", Source::Dependent),
    ("network.cu", Source::Portable),
    // Each thread or group of threads has its own items.
    ("item_heads.cu", Source::Dependent),
    ("item_merge.cu", Source::Dependent),
    ("item_sums.cu", Source::Dependent),
    ("item_pack.cu", Source::Dependent),
    // Each CTA has its own rows, or its own blocks of a matrix.
    ("block_sparse.cu", Source::Dependent),
    ("block_sparse_few.cu", Source::Dependent),
    // Products of warpgroups, and sums over the CTAs of a cluster: instructions of 90a.
    ("attention_long.cu", Source::Rows),
    // Each warp has its own rows of queries or keys.
    ("attention.cu", Source::Portable),
    ("attention_whole.cu", Source::Dependent),
    // Lists of kernels, and what loads others, without code for GPUs.
    ("registry.cu", Source::Portable),
    ("load.cu", Source::Portable),
    ("blocks.cu", Source::Portable),
];

impl Source {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Rows, Self::Portable, Self::Dependent, Self::Double];

    /// The kind of a file, by its path.
    ///
    /// # Errors
    /// A file that the table of kinds does not have.
    pub fn of(file: &str) -> Result<Self, Error> {
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let found = KINDS.iter().find(|(pattern, _)| fits(pattern, name));
        found
            .map(|&(_, kind)| kind)
            .ok_or_else(|| Error::UnknownSource {
                file: file.to_owned(),
            })
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cuda_sources;

    #[test]
    fn files_are_told_apart_by_name() -> Result<(), Error> {
        for (file, kind) in [
            ("generated/cl300/sgp_f32.cu", Source::Rows),
            ("generated/cl300/points_f32.cu", Source::Portable),
            ("generated/cl300/points_f64.cu", Source::Double),
            ("generated/cl300/blocks_f32.cu", Source::Portable),
            ("generated/cl300/blocks_f64.cu", Source::Double),
            ("launch.cu", Source::Rows),
            ("linear.cu", Source::Portable),
            ("linear_few.cu", Source::Portable),
            ("block_sparse.cu", Source::Dependent),
        ] {
            assert_eq!(Source::of(file)?, kind, "{file}");
        }
        Ok(())
    }

    #[test]
    fn a_new_file_must_be_put_into_the_table() {
        for file in ["generated/cl300/fused_f32.cu", "new.cu", "sgp_f32.cuh"] {
            let error = Source::of(file).unwrap_err();
            assert!(error.to_string().contains(file), "{error}");
        }
    }

    #[test]
    fn the_table_has_every_file_and_no_other() -> Result<(), Error> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut names = Vec::new();
        for file in cuda_sources(&root.join("crates/flashcliff-sys/cuda"))? {
            let name = file.file_name().map(|name| name.to_string_lossy());
            names.extend(name.map(std::borrow::Cow::into_owned));
        }
        // The files that a build generates are not committed; this is a list of them.
        let list = root.join("codegen/review/files.txt");
        let list =
            std::fs::read_to_string(&list).map_err(|source| Error::Io { path: list, source })?;
        let generated = list.lines().filter_map(|line| line.split(' ').next());
        let generated = generated.filter(|path| path.ends_with(".cu"));
        names.extend(generated.filter_map(|path| path.rsplit('/').next().map(str::to_owned)));
        for name in &names {
            Source::of(name)?;
        }
        for (pattern, _) in KINDS {
            let found = names.iter().any(|name| fits(pattern, name));
            assert!(found, "no file fits {pattern}");
        }
        Ok(())
    }
}
