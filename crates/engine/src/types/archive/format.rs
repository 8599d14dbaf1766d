//! Archive formats.

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Format {
    /// A tar file, and the program that decompresses it if it is compressed.
    Tar(Option<&'static str>),
    Zip,
}

impl Format {
    /// Returns the format for a name or an address.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let ends = |endings: &[&str]| {
            endings
                .iter()
                .any(|ending| name == *ending || name.ends_with(&format!(".{ending}")))
        };
        if ends(&["tar.gz", "tgz"]) {
            Some(Self::Tar(Some("gzip")))
        } else if ends(&["tar.xz", "txz"]) {
            Some(Self::Tar(Some("xz")))
        } else if ends(&["tar.bz2", "tbz", "tbz2"]) {
            Some(Self::Tar(Some("bzip2")))
        } else if ends(&["tar.zst", "tzst"]) {
            Some(Self::Tar(Some("zstd")))
        } else if ends(&["tar"]) {
            Some(Self::Tar(None))
        } else if ends(&["zip", "jar"]) {
            Some(Self::Zip)
        } else {
            None
        }
    }
}
