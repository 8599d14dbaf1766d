//! The store on etcd over TLS, and the error messages when it does not work.

use std::time::Duration;

use bunraku_store::etcd::{EtcdOptions, EtcdStore, EtcdTls};
use bunraku_store::testing::{EtcdCluster, TestAuthority};
use bunraku_store::{Store, Transaction};

async fn refused(options: EtcdOptions) -> String {
    let options = EtcdOptions {
        request_timeout: Duration::from_secs(1),
        retry_for: Duration::from_secs(1),
        ..options
    };
    match EtcdStore::connect(options).await {
        Ok(_) => panic!("the connection must not work"),
        Err(error) => bunraku_model::error_chain(&error),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_decide_who_talks_to_whom() {
    let cluster = EtcdCluster::start_with_tls(1).await;
    let good = cluster.options("/tls/");

    let store = EtcdStore::connect(good.clone()).await.expect("connects");
    let done = store
        .commit(Transaction::new().put("key", "value"))
        .await
        .expect("commits");
    assert!(done.is_committed());

    let tls = good.tls.clone().expect("TLS");
    let stranger = TestAuthority::new();

    let wrong_ca = refused(EtcdOptions {
        tls: Some(EtcdTls {
            ca_pem: stranger.ca_pem(),
            ..tls.clone()
        }),
        ..good.clone()
    })
    .await;
    assert!(
        wrong_ca.contains("cannot trust etcd at https://127.0.0.1:"),
        "{wrong_ca}"
    );
    assert!(
        wrong_ca.contains("UnknownIssuer") || wrong_ca.contains("invalid peer certificate"),
        "{wrong_ca}"
    );

    let nobody = refused(EtcdOptions {
        tls: Some(EtcdTls {
            identity: None,
            ..tls.clone()
        }),
        ..good.clone()
    })
    .await;
    assert!(
        nobody.contains("requires a client certificate, and none is configured"),
        "{nobody}"
    );

    let impostor = refused(EtcdOptions {
        tls: Some(EtcdTls {
            identity: Some(stranger.identity("client")),
            ..tls.clone()
        }),
        ..good.clone()
    })
    .await;
    assert!(
        impostor.contains("refused our client certificate"),
        "{impostor}"
    );

    let plain = refused(EtcdOptions {
        tls: None,
        ..good.clone()
    })
    .await;
    assert!(plain.contains("https needs a CA certificate"), "{plain}");
}
