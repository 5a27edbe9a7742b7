//! `cuda-toolkit`: installs a CUDA toolkit for this build folder.

use std::path::Path;

use build_support::INSTALLED_TOOLKIT;

use crate::{Error, command, pins};

/// Installs the toolkit if needed. Returns the path of its nvcc.
pub(crate) fn run(root: &Path) -> Result<String, Error> {
    let target = command::target_folder(root)?;
    pins::CUDA_TOOLKIT.ensure(&target)?;
    let nvcc = target.join(INSTALLED_TOOLKIT).join("bin/nvcc");
    Ok(nvcc.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_scripts_look_where_it_is_installed() {
        let nvcc = Path::new(pins::CUDA_TOOLKIT.folder).join(pins::CUDA_TOOLKIT.files[0]);
        assert_eq!(nvcc, Path::new(INSTALLED_TOOLKIT).join("bin/nvcc"));
    }
}
