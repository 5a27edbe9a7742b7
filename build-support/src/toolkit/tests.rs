//! Tests the search on toolkits that are only files.

use std::io::Result;

use tempfile::TempDir;

use super::*;

/// A folder for toolkits. Their nvcc is a text file with the text that `nvcc --version` would print.
struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { folder })
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
        Ok(path)
    }

    /// A toolkit with the runtime in one of its library folders.
    fn toolkit(&self, relative: &str, version: &str, libraries: &str) -> Result<PathBuf> {
        let text = format!("Cuda compilation tools, release 0, V{version}\n");
        self.write(&format!("{relative}/{libraries}/{RUNTIME}"), "")?;
        self.write(&format!("{relative}/bin/nvcc"), &text)
    }

    /// An environment without variables. The places that need no variable lie in the sandbox.
    fn environment(&self) -> Environment {
        Environment {
            system_toolkit: self.path("system"),
            target_folders: vec![self.path("target-1"), self.path("target-2")],
            ..Environment::default()
        }
    }
}

fn find(environment: &Environment) -> std::result::Result<Toolkit, Error> {
    Toolkit::find_with(environment, |nvcc| fs::read_to_string(nvcc))
}

fn nvcc(environment: &Environment) -> Result<PathBuf> {
    find(environment)
        .map(|toolkit| toolkit.nvcc)
        .map_err(io::Error::other)
}

#[test]
fn each_place_precedes_those_after_it() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let mut environment = sandbox.environment();
    // The places go from the last to the first: each toolkit that is added must win over those added before.
    for target in ["target-2", "target-1"] {
        let installed =
            sandbox.toolkit(&format!("{target}/{INSTALLED_TOOLKIT}"), "13.0.88", "lib")?;
        assert_eq!(nvcc(&environment)?, installed);
    }
    let system = sandbox.toolkit("system", "13.0.88", "lib64")?;
    assert_eq!(nvcc(&environment)?, system);
    let in_path = sandbox.toolkit("path", "13.0.88", "lib64")?;
    let path = env::join_paths([sandbox.path("nowhere"), sandbox.path("path/bin")]);
    environment = environment.with("PATH", path.map_err(io::Error::other)?);
    assert_eq!(nvcc(&environment)?, in_path);
    for variable in ["CUDA_PATH", "CUDA_HOME"] {
        let expected = sandbox.toolkit(variable, "13.0.88", "lib64")?;
        environment = environment.with(variable, sandbox.path(variable));
        assert_eq!(nvcc(&environment)?, expected);
    }
    for variable in ["NVCC", "FLASHCLIFF_NVCC"] {
        let expected = sandbox.toolkit(variable, "13.0.88", "lib64")?;
        environment = environment.with(variable, &expected);
        assert_eq!(nvcc(&environment)?, expected);
    }
    Ok(())
}

#[test]
fn a_variable_that_points_to_nothing_is_not_passed_over() -> Result<()> {
    let sandbox = Sandbox::new()?;
    sandbox.toolkit("system", "13.0.88", "lib64")?;
    sandbox.toolkit("path", "13.0.88", "lib64")?;
    for name in Toolkit::VARIABLES {
        let environment = sandbox.environment().with("PATH", sandbox.path("path/bin"));
        let error = find(&environment.with(name, sandbox.path("missing"))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("missing"), "{text}");
        assert!(
            matches!(error, Error::NoSuchNvcc { variable, .. } if variable == name),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn a_bare_name_is_looked_up_in_path() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let expected = sandbox.toolkit("path", "13.0.88", "lib64")?;
    let environment = sandbox.environment().with("PATH", sandbox.path("path/bin"));
    assert_eq!(nvcc(&environment.clone().with("NVCC", "nvcc"))?, expected);
    let error = find(&environment.with("NVCC", "nvcc-13")).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoSuchNvcc {
                variable: "NVCC",
                ..
            }
        ),
        "{error}"
    );
    Ok(())
}

#[test]
fn the_library_folder_is_found_in_every_layout() -> Result<()> {
    let sandbox = Sandbox::new()?;
    for (i, folder) in LIBRARY_FOLDERS.into_iter().enumerate() {
        let name = format!("layout-{i}");
        let nvcc = sandbox.toolkit(&name, "12.8.93", folder)?;
        let found = find(&sandbox.environment().with("CUDA_HOME", sandbox.path(&name)));
        let root = fs::canonicalize(sandbox.path(&name))?;
        let expected = Toolkit {
            nvcc,
            libraries: root.join(folder),
            root,
            version: Version {
                major: 12,
                minor: 8,
                build: 93,
            },
        };
        assert_eq!(found.map_err(io::Error::other)?, expected);
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_toolkit() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let real = sandbox.toolkit("real", "13.0.88", "lib64")?;
    fs::create_dir_all(sandbox.path("links"))?;
    std::os::unix::fs::symlink(&real, sandbox.path("links/nvcc"))?;
    let environment = sandbox.environment().with("PATH", sandbox.path("links"));
    let toolkit = find(&environment).map_err(io::Error::other)?;
    assert_eq!(toolkit.nvcc, sandbox.path("links/nvcc"));
    assert_eq!(toolkit.root, fs::canonicalize(sandbox.path("real"))?);
    assert_eq!(toolkit.tool("nvcc"), Some(fs::canonicalize(real)?));
    assert_eq!(toolkit.tool("cuobjdump"), None);
    Ok(())
}

#[test]
fn without_any_the_error_lists_the_places_and_both_remedies() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let error = find(&sandbox.environment()).unwrap_err();
    assert!(matches!(error, Error::NoNvcc { .. }), "{error}");
    let text = error.to_string();
    for place in [
        "FLASHCLIFF_NVCC",
        "NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "PATH",
        "system",
        "target-2",
    ] {
        assert!(text.contains(place), "{place}: {text}");
    }
    assert!(text.contains("set CUDA_HOME"), "{text}");
    assert!(text.contains("cargo xtask cuda-toolkit"), "{text}");
    Ok(())
}

#[test]
fn an_unusable_toolkit_is_refused() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let error = |name: &str| {
        let environment = sandbox.environment().with("CUDA_HOME", sandbox.path(name));
        find(&environment).unwrap_err()
    };
    sandbox.toolkit("old", "12.6.85", "lib64")?;
    let text = error("old").to_string();
    assert!(matches!(error("old"), Error::NvccTooOld { .. }), "{text}");
    assert!(
        text.contains("12.6.85") && text.contains("at least 12.8"),
        "{text}"
    );

    sandbox.write("mute/bin/nvcc", "no version here")?;
    let text = error("mute").to_string();
    assert!(matches!(error("mute"), Error::NoVersion { .. }), "{text}");
    assert!(text.contains("no version here"), "{text}");

    sandbox.toolkit("bare", "13.0.88", "lib64")?;
    fs::remove_file(sandbox.path("bare/lib64").join(RUNTIME))?;
    let text = error("bare").to_string();
    assert!(matches!(error("bare"), Error::NoRuntime { .. }), "{text}");
    assert!(text.contains("lib64"), "{text}");
    Ok(())
}

#[test]
fn an_nvcc_that_does_not_run_is_an_error() -> Result<()> {
    let sandbox = Sandbox::new()?;
    // This nvcc is a text file without permission to be run.
    sandbox.toolkit("system", "13.0.88", "lib64")?;
    let error = Toolkit::find(&sandbox.environment()).unwrap_err();
    assert!(matches!(error, Error::NvccFails { .. }), "{error}");
    Ok(())
}
