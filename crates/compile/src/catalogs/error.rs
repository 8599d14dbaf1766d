//! Errors of stored catalogs.

use std::path::PathBuf;

use bunraku_model::catalog::CatalogReadError;
use bunraku_model::{CatalogId, ContentId};
use bunraku_store::StoreError;
use bunraku_store::blobs::BlobError;

use bunraku_control::ServiceError;

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("catalog {0} does not exist")]
    Missing(CatalogId),

    #[error("the catalog has {size} bytes, which exceeds the limit of {limit}")]
    TooLarge { size: u64, limit: u64 },

    #[error("the catalog refers to {count} files, which exceeds the limit of {limit}")]
    TooManyFiles { count: usize, limit: usize },

    #[error("the catalog refers to content {0}, which is missing")]
    FileNotGiven(ContentId),

    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    #[error("cannot read back catalog {id}")]
    Unreadable {
        id: CatalogId,
        #[source]
        source: CatalogReadError,
    },

    #[error("cannot store the catalog's content")]
    Blob(#[from] BlobError),

    #[error("cannot store the catalog's record")]
    Store(#[from] StoreError),

    #[error("the catalog's record is invalid")]
    Record(#[source] Box<ServiceError>),
}

impl From<ServiceError> for CatalogError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Store(error) => Self::Store(error),
            other => Self::Record(Box::new(other)),
        }
    }
}

impl From<CatalogError> for ServiceError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Missing(id) => Self::NotFound {
                what: format!("catalog {id}"),
                hint: None,
            },
            CatalogError::TooLarge { size, limit } => Self::TooLarge {
                what: "the catalog".to_owned(),
                size,
                limit,
                hint: Some("raise `max_catalog_bytes` under [server.compile]".to_owned()),
            },
            CatalogError::Store(error) => Self::Store(error),
            CatalogError::Blob(error) => Self::content("cannot use a catalog", error),
            CatalogError::Record(error) => *error,
            other => Self::internal("cannot use a catalog", other),
        }
    }
}
