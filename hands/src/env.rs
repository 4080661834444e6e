//! The environment of a child: the executor's own without its credentials, then
//! what the request adds within bounds, then what the machine's owner sets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

/// The most variables that one request may set.
pub const MAX_ENTRIES: usize = 64;

/// The most bytes, of names and values together, that one request may set.
pub const MAX_BYTES: usize = 32 * 1024;

/// Decides about a name: see [`EnvPolicy::deny`].
pub type DenyEnv = dyn Fn(&str) -> bool + Send + Sync;

/// How the environment of a child is made.
#[derive(Clone)]
pub struct EnvPolicy {
    base: Vec<(OsString, OsString)>,
    deny: Option<Arc<DenyEnv>>,
    fixed: BTreeMap<String, String>,
}

impl EnvPolicy {
    /// Children see nothing of this process's environment.
    pub fn empty() -> Self {
        Self { base: Vec::new(), deny: None, fixed: BTreeMap::new() }
    }

    /// Children see this process's environment as it is now, without our own
    /// variables (`BMA_*`, where credentials are), and without the shell's
    /// memory of directories.
    pub fn inherit() -> Self {
        Self::from_vars(std::env::vars_os())
    }

    /// As [`inherit`](Self::inherit), from these variables.
    pub fn from_vars(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let base = vars.into_iter().filter(|(name, _)| !is_private(name)).collect();
        Self { base, ..Self::empty() }
    }

    /// Names that no child may see: they are left out of what is inherited, and a
    /// request that sets one is refused.
    ///
    /// # Errors
    /// [`EnvError::FixedDenied`] when one of the fixed variables is denied.
    pub fn deny(mut self, deny: impl Fn(&str) -> bool + Send + Sync + 'static) -> Result<Self, EnvError> {
        if let Some(name) = self.fixed.keys().find(|name| deny(name)) {
            return Err(EnvError::FixedDenied { name: name.clone() });
        }
        self.base.retain(|(name, _)| !deny(&name.to_string_lossy()));
        self.deny = Some(Arc::new(deny));
        Ok(self)
    }

    /// Variables that every child has and no request overrides.
    ///
    /// # Errors
    /// [`EnvError::FixedDenied`] when one is denied, or another error when a name
    /// or value is none.
    pub fn fixed(mut self, vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, EnvError> {
        for (name, value) in vars {
            check(&name, &value)?;
            if self.denies(&name) {
                return Err(EnvError::FixedDenied { name });
            }
            self.fixed.insert(name, value);
        }
        Ok(self)
    }

    /// The complete environment of a child for which a request asks for `request`.
    ///
    /// # Errors
    /// The request asks for too much, or for something that it may not set; nothing
    /// should run then.
    pub fn build(&self, request: &BTreeMap<String, String>) -> Result<Vec<(OsString, OsString)>, EnvError> {
        if request.len() > MAX_ENTRIES {
            return Err(EnvError::TooMany { entries: request.len() });
        }
        let bytes: usize = request.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_BYTES {
            return Err(EnvError::TooLarge { bytes });
        }
        for (name, value) in request {
            check(name, value)?;
            if is_loader_variable(name) || is_private(OsStr::new(name)) || self.denies(name) {
                return Err(EnvError::Refused { name: name.clone() });
            }
        }
        let mut env: BTreeMap<Key, (OsString, OsString)> = BTreeMap::new();
        let asked = request.iter().chain(&self.fixed).map(|(name, value)| (name.into(), value.into()));
        for (name, value) in self.base.iter().cloned().chain(asked) {
            env.insert(Key::new(&name), (name, value));
        }
        Ok(env.into_values().collect())
    }

    fn denies(&self, name: &str) -> bool {
        self.deny.as_ref().is_some_and(|deny| deny(name))
    }
}

impl fmt::Debug for EnvPolicy {
    /// Names only: values may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvPolicy")
            .field("base", &self.base.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("fixed", &self.fixed.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A name as the system compares it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key(OsString);

impl Key {
    fn new(name: &OsStr) -> Self {
        if cfg!(windows) { Self(name.to_ascii_uppercase()) } else { Self(name.to_owned()) }
    }
}

/// Ours, or a note of some shell about where it was.
fn is_private(name: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_ascii_uppercase();
    upper.starts_with("BMA_") || matches!(upper.as_str(), "PWD" | "OLDPWD" | "_")
}

/// What makes a loader or a shell run code before the command does.
fn is_loader_variable(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.starts_with("LD_") || upper.starts_with("DYLD_") || upper == "BASH_ENV" || upper == "ENV"
}

fn check(name: &str, value: &str) -> Result<(), EnvError> {
    let mut bytes = name.bytes();
    let valid = bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    if !valid {
        return Err(EnvError::InvalidName { name: name.chars().take(64).collect() });
    }
    if value.contains('\0') {
        return Err(EnvError::InvalidValue { name: name.to_owned() });
    }
    Ok(())
}

/// Why an environment is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// Too many variables.
    #[error("env has {entries} entries, at most {MAX_ENTRIES} are allowed")]
    TooMany {
        /// How many.
        entries: usize,
    },
    /// Too many bytes.
    #[error("env has {bytes} bytes of names and values, at most {MAX_BYTES} are allowed")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// No name of a variable: letters, digits and `_`, not beginning with a digit.
    #[error("env name {name:?} is not valid: use letters, digits and _, not beginning with a digit")]
    InvalidName {
        /// Its first characters.
        name: String,
    },
    /// A value with a NUL character.
    #[error("the value of env {name} contains a NUL character")]
    InvalidValue {
        /// The variable.
        name: String,
    },
    /// A variable that a request may not set.
    #[error("env {name} may not be set by a request")]
    Refused {
        /// The variable.
        name: String,
    },
    /// The machine's owner both sets and denies it.
    #[error("env {name} is both set for every child and denied: remove one")]
    FixedDenied {
        /// The variable.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use super::*;

    fn vars(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn os(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn later_layers_win_and_credentials_stay_behind() {
        let policy =
            EnvPolicy::from_vars(os(&[("PATH", "/bin"), ("BMA_TOKEN", "secret"), ("AWS_KEY", "k"), ("PWD", "/x")]))
                .fixed(vars(&[("HOME", "/home/work")]))
                .unwrap()
                .deny(|name| name.starts_with("AWS_"))
                .unwrap();
        let env = policy.build(&vars(&[("HOME", "/elsewhere"), ("PATH", "/usr/bin"), ("X", "1")])).unwrap();
        assert_eq!(env, os(&[("HOME", "/home/work"), ("PATH", "/usr/bin"), ("X", "1")]));
        assert!(!format!("{policy:?}").contains("/bin"), "values may be private");
    }

    #[test]
    fn a_request_may_not_set_what_runs_code_or_is_denied() {
        let policy = EnvPolicy::empty().deny(|name| name == "PRIVATE").unwrap();
        for name in ["LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PRIVATE", "BMA_TOKEN"] {
            assert_eq!(policy.build(&vars(&[(name, "x")])), Err(EnvError::Refused { name: name.into() }));
        }
        for name in ["", "1A", "A=B", "A B", "BASH_FUNC_ls%%", "Ä"] {
            assert!(matches!(policy.build(&vars(&[(name, "x")])), Err(EnvError::InvalidName { .. })), "{name}");
        }
        assert!(matches!(policy.build(&vars(&[("A", "x\0y")])), Err(EnvError::InvalidValue { .. })));
        assert!(policy.build(&vars(&[("ENVIRONMENT", "x"), ("LDAP", "y")])).is_ok());
    }

    #[test]
    fn a_request_is_bounded() {
        let policy = EnvPolicy::empty();
        let many = |count: usize| (0..count).map(|i| (format!("V{i}"), String::new())).collect();
        assert!(policy.build(&many(64)).is_ok());
        assert_eq!(policy.build(&many(65)), Err(EnvError::TooMany { entries: 65 }));
        let large = vars(&[("A", &"x".repeat(32 * 1024))]);
        assert_eq!(policy.build(&large), Err(EnvError::TooLarge { bytes: 32 * 1024 + 1 }));
    }

    #[test]
    fn what_is_fixed_cannot_be_denied() {
        let both = EnvError::FixedDenied { name: "BMA_HOME".into() };
        let fixed = EnvPolicy::empty().fixed(vars(&[("BMA_HOME", "/b")])).unwrap();
        assert_eq!(fixed.deny(|name| name == "BMA_HOME").err(), Some(both.clone()));
        let denied = EnvPolicy::empty().deny(|name| name == "BMA_HOME").unwrap();
        assert_eq!(denied.fixed(vars(&[("BMA_HOME", "/b")])).err(), Some(both));
    }
}
