//! Fetches the catalogs and files that the cache lacks. Nothing is used before its hash is
//! verified.

use std::io::{Read, Write};

use bunraku_model::catalog::{PLUGINS_ADDRESS, SourceFile};
use bunraku_model::{Catalog, CatalogId, ContentId, NodeName};
use bunraku_wire::Client;
use bunraku_wire::client::Download;
use bunraku_wire::endpoints::{Endpoint, ShowContent, ShowNodeCatalog};
use sha2::{Digest, Sha256};

use super::cache::file_error;
use super::{CatalogCache, CatalogError, CatalogOptions};
use bunraku_wire::api::Target;

impl CatalogCache {
    /// Returns the target's catalog, with every file that it refers to in the cache.
    pub(crate) async fn complete(
        &self,
        client: &Client,
        node: &NodeName,
        target: &Target,
        options: &CatalogOptions,
    ) -> Result<Catalog, CatalogError> {
        let catalog = match self.catalog(target.catalog) {
            Some(catalog) => catalog,
            None => {
                let at = ShowNodeCatalog.at((node, &target.catalog));
                let download = client.fetch_compressed(at).await?;
                let limit = options.largest_catalog;
                self.keep_download(target.catalog, download, limit).await?
            }
        };
        if !catalog.name.is_empty() && catalog.name != node.as_str() {
            let id = target.catalog.0.short();
            return Err(CatalogError::OtherNode(id, catalog.name));
        }
        let wanted = (catalog.sources.iter())
            .filter(|(address, _)| options.plugins || *address != PLUGINS_ADDRESS)
            .flat_map(|(_, source)| source.files());
        for file in wanted {
            if !self.has_content(file.content, file.size) {
                self.fetch_content(client, file, options).await?;
            }
        }
        Ok(catalog)
    }

    /// Verifies a catalog that arrives, and keeps it.
    async fn keep_download(
        &self,
        id: CatalogId,
        download: Download,
        limit: u64,
    ) -> Result<Catalog, CatalogError> {
        let what = || format!("catalog {}", id.0.short());
        let zipped = download.encoding.as_deref() == Some("gzip");
        let body = read_body(download, limit, what).await?;
        let text = if zipped {
            unzipped(&body, limit, what)?
        } else {
            body
        };
        let catalog = Catalog::from_json(&text).map_err(|source| CatalogError::Unreadable {
            what: what(),
            source: source.into(),
        })?;
        if catalog.id() != id {
            return Err(CatalogError::Wrong { what: what() });
        }
        self.store(id, &text)?;
        tracing::info!(catalog = %id.0.short(), bytes = text.len(), "fetched a catalog");
        Ok(catalog)
    }

    pub(super) async fn fetch_content(
        &self,
        client: &Client,
        file: SourceFile,
        options: &CatalogOptions,
    ) -> Result<(), CatalogError> {
        let id = file.content;
        let what = || format!("file {}", id.short());
        let limit = options.largest_file;
        if file.size > limit {
            let what = what();
            return Err(CatalogError::TooLarge { what, limit });
        }
        let mut download = client.fetch_pieces(ShowContent.at(&id)).await?;
        let beside = self.partial_path(id);
        let failed = || file_error(&beside);
        let mut out = std::fs::File::create(&beside).map_err(failed())?;
        let mut hasher = Sha256::new();
        let mut size = 0;
        while let Some(piece) = download.next().await {
            let piece = piece?;
            size += piece.len() as u64;
            if size > file.size {
                break;
            }
            hasher.update(&piece);
            out.write_all(&piece).map_err(failed())?;
        }
        if size != file.size || ContentId::from_digest(hasher.finalize().into()) != id {
            let _ = std::fs::remove_file(&beside);
            return Err(CatalogError::Wrong { what: what() });
        }
        self.place(id, &beside, &out)
    }
}

/// Returns the complete body, unless it is larger than allowed.
async fn read_body(
    mut download: Download,
    limit: u64,
    what: impl Fn() -> String,
) -> Result<Vec<u8>, CatalogError> {
    let too_large = || CatalogError::TooLarge {
        what: what(),
        limit,
    };
    if download.length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(piece) = download.next().await {
        body.extend_from_slice(&piece?);
        if body.len() as u64 > limit {
            return Err(too_large());
        }
    }
    Ok(body)
}

/// Decompresses a body. The limit applies to the decompressed size, however small the compressed
/// body is.
fn unzipped(body: &[u8], limit: u64, what: impl Fn() -> String) -> Result<Vec<u8>, CatalogError> {
    let mut text = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(body).take(limit + 1);
    reader
        .read_to_end(&mut text)
        .map_err(|source| CatalogError::Unreadable {
            what: what(),
            source: source.into(),
        })?;
    if text.len() as u64 > limit {
        Err(CatalogError::TooLarge {
            what: what(),
            limit,
        })
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_body_that_unpacks_to_a_huge_one_is_refused() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&vec![b' '; 50 << 20]).expect("in memory");
        let packed = packer.finish().expect("in memory");
        assert!(packed.len() < 100_000);
        let limit = CatalogOptions::default().largest_catalog;
        let refused = unzipped(&packed, limit, || "catalog x".to_owned()).expect_err("too large");
        assert_eq!(
            refused.to_string(),
            "catalog x exceeds this node's limit of 33554432 bytes"
        );
    }
}
