//! What a machine-scoped executor does for its machine: skills, backups, mounted views.

use serde::{Deserialize, Serialize};

use super::enums::FsView;
use super::ids::SessionId;
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::secret::Secret;
use super::text_map::TextMap;

/// Params of `skill.install`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillInstallParams {
    /// The machine.
    #[serde(deserialize_with = "not_empty")]
    pub machine_id: String,
    /// The skill.
    #[serde(deserialize_with = "not_empty")]
    pub skill_id: String,
    /// Its revision.
    #[serde(deserialize_with = "not_empty")]
    pub revision_id: String,
    /// `sha256:` and the digest of the download.
    #[serde(deserialize_with = "not_empty")]
    pub digest: String,
    /// What to show when downloading it.
    #[serde(deserialize_with = "not_empty")]
    pub download_token: Secret,
    /// When the token expires, in seconds since 1970.
    pub download_expires_at: i64,
}

/// Result of `skill.install`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillInstallResult {
    /// `ready` or `failed`.
    pub state: String,
    /// The cause, for programs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Params of `workspace.backup`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceBackupParams {
    /// The backup.
    #[serde(deserialize_with = "not_empty")]
    pub backup_id: String,
    /// What to save.
    #[serde(deserialize_with = "null_as_default")]
    pub paths: Vec<String>,
    /// What to leave out.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Save nothing when the fingerprint is still this one.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub skip_if_fingerprint: Option<String>,
}

/// Result of `workspace.backup`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceBackupResult {
    /// What became of it.
    pub state: String,
    /// Fingerprint of what was saved.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Digest of the archive as it was stored.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Length of the archive in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Files and directories in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<i64>,
    /// Those that could not be read and are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<i64>,
    /// The cause of a failure, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Params of `fs.mount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsMountParams {
    /// The session.
    pub session_id: SessionId,
    /// Prefix of the file service; the executor appends `/<op>` and nothing else.
    #[serde(deserialize_with = "not_empty")]
    pub service_url: String,
    /// The views to mount, all or none.
    #[serde(deserialize_with = "null_as_default")]
    pub mounts: Vec<FsMount>,
}

/// One view to mount.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsMount {
    /// Which view.
    pub view: FsView,
    /// Where: an absolute path.
    pub path: String,
    /// Whether nothing may be written.
    pub readonly: bool,
    /// What to show to the file service. Kept in memory only.
    #[serde(deserialize_with = "not_empty")]
    pub token: Secret,
    /// Tuning; unknown names are ignored.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub options: TextMap,
}

/// Result of `fs.mount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsMountResult {
    /// `mounted` once every view is served, or `failed` with nothing mounted.
    pub state: String,
    /// The cause, for programs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Params of `fs.unmount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsUnmountParams {
    /// The session.
    pub session_id: SessionId,
    /// Whether to save what is not saved yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<bool>,
}

/// Result of `fs.unmount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsUnmountResult {
    /// What became of it.
    pub state: String,
    /// Bytes that are still not saved; 0 for read-only views.
    pub pending_bytes: i64,
    /// The cause, for programs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
