//! Cluster membership through the API: how a server joins.

use std::sync::Arc;

use bunraku_model::NodeName;
use bunraku_server::{ClusterLink, ClusterMember};
use bunraku_wire::api::cluster::{
    AuthorityFiles, ClusterInvitation, ClusterInviteRequest, ClusterJoinRequest,
    ClusterSshJoinRequest, ClusterSshWelcome, ClusterView, ClusterWelcome, ExpectServerRequest,
    JoiningServer, MemberState, MemberView, ServerList,
};
use bunraku_wire::api::{NewToken, TokenRequest};
use bunraku_wire::client::ClientError;

use crate::support::TestServer;

/// A member that sees no other members.
struct Alone;

impl ClusterMember for Alone {
    fn view(&self) -> ClusterView {
        ClusterView {
            seen_by: NodeName::new("s1").expect("a name"),
            epoch: 1,
            health_score: 0,
            members: vec![MemberView {
                name: NodeName::new("s9").expect("a name"),
                state: MemberState::Dead,
                since: jiff::Timestamp::UNIX_EPOCH,
                said_by: NodeName::new("s1").expect("a name"),
            }],
            waiting: None,
            datastores: 3,
            datastores_healthy: 2,
            changes: 1,
        }
    }

    fn servers(&self) -> Vec<String> {
        vec!["192.0.2.1:8150".to_owned()]
    }

    fn welcome(&self) -> Result<ClusterWelcome, Box<dyn std::error::Error + Send + Sync>> {
        Ok(ClusterWelcome {
            cluster: "c".to_owned(),
            epoch: 1,
            authority: None,
            member_authority: AuthorityFiles {
                certificates: "members".to_owned(),
                key: "secret".to_owned(),
            },
            members: Vec::new(),
            endpoints: Vec::new(),
        })
    }
}

fn joining(name: &str, port: u16) -> JoiningServer {
    JoiningServer {
        name: NodeName::new(name).expect("a name"),
        member_address: format!("192.0.2.2:{port}"),
        api_address: "192.0.2.2:8150".to_owned(),
        client_url: "https://192.0.2.2:8152".to_owned(),
        peer_url: "https://192.0.2.2:8153".to_owned(),
        eligible: true,
    }
}

fn request(name: &str, token: &str, port: u16) -> ClusterJoinRequest {
    ClusterJoinRequest {
        token: token.to_owned(),
        server: joining(name, port),
    }
}

async fn join(
    server: &TestServer,
    request: &ClusterJoinRequest,
) -> Result<ClusterWelcome, ClientError> {
    server.stranger().post("/v1/cluster/join", request).await
}

async fn invitation(server: &TestServer) -> String {
    let request = ClusterInviteRequest { ttl_seconds: 60 };
    let made = server.operator.post("/v1/cluster/invitations", &request);
    let made: ClusterInvitation = made.await.expect("an invitation");
    made.token
}

async fn member_server() -> TestServer {
    TestServer::start_with(|options| options.services.cluster = Some(ClusterLink(Arc::new(Alone))))
        .await
}

#[tokio::test]
async fn an_invitation_lets_one_server_in_once_and_nodes_learn_of_it() {
    let mut server = member_server().await;
    let token = invitation(&server).await;
    let welcome = join(&server, &request("s2", &token, 8151)).await;
    let welcome = welcome.expect("it is let in");
    assert!(welcome.authority.is_some(), "it can sign nodes, too");
    assert_eq!(welcome.members.len(), 1);
    let again = join(&server, &request("s3", &token, 8151)).await;
    assert_eq!(again.expect_err("once").status(), Some(403));
    let node = server.node("web-1").await;
    let list: ServerList = node.get("/v1/servers").await.expect("the list");
    assert_eq!(list.servers, ["192.0.2.1:8150"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_token_for_a_node_opens_no_authority() {
    let mut server = member_server().await;
    let request_token = TokenRequest {
        ttl_seconds: 60,
        node: None,
    };
    let token: NewToken = server
        .operator
        .post("/v1/tokens", &request_token)
        .await
        .expect("a token");
    let refused = join(&server, &request("s2", &token.token, 8151)).await;
    assert_eq!(refused.expect_err("not for servers").status(), Some(403));
    server.shutdown().await;
}

#[tokio::test]
async fn a_name_belongs_to_one_server() {
    let mut server = member_server().await;
    let token = invitation(&server).await;
    join(&server, &request("s2", &token, 8151))
        .await
        .expect("it is let in");
    let token = invitation(&server).await;
    let other = join(&server, &request("s2", &token, 9999)).await;
    assert_eq!(other.expect_err("another one").status(), Some(409));
    // The reply was lost, so the server asks again with the same addresses.
    join(&server, &request("s2", &token, 8151))
        .await
        .expect("it is let in again");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_not_a_member_reports_that() {
    let mut server = TestServer::start().await;
    let refused = server
        .operator
        .post::<_, ClusterInvitation>(
            "/v1/cluster/invitations",
            &ClusterInviteRequest { ttl_seconds: 60 },
        )
        .await;
    assert_eq!(refused.expect_err("no cluster").status(), Some(409));
    let node = server.node("web-1").await;
    let list: ServerList = node.get("/v1/servers").await.expect("the list");
    assert!(list.servers.is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn a_dead_server_is_a_number_that_monitoring_sees() {
    let mut server = member_server().await;
    let mut download = server.operator.download("/metrics").await.expect("metrics");
    let mut text = Vec::new();
    while let Some(chunk) = download.next().await {
        text.extend_from_slice(&chunk.expect("a chunk"));
    }
    let text = String::from_utf8(text).expect("text");
    for shown in [
        r#"bunraku_cluster_members{state="dead"} 1"#,
        r#"bunraku_cluster_members{state="alive"} 0"#,
    ] {
        assert!(text.contains(shown), "{shown} is missing in {text}");
    }
    drop(download);
    server.shutdown().await;
}

/// A member that reaches one machine, which holds this key.
struct Reaches {
    key: &'static str,
    placed: std::sync::Mutex<Vec<(String, Vec<u8>)>>,
}

#[async_trait::async_trait]
impl ClusterMember for Reaches {
    fn view(&self) -> ClusterView {
        Alone.view()
    }

    fn servers(&self) -> Vec<String> {
        Alone.servers()
    }

    fn welcome(&self) -> Result<ClusterWelcome, Box<dyn std::error::Error + Send + Sync>> {
        Alone.welcome()
    }

    fn speaks_ssh(&self) -> bool {
        true
    }

    async fn read_key(
        &self,
        host: &str,
        _: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        match host {
            "192.0.2.2" => Ok(self.key.to_owned()),
            _ => Err("no route to host".into()),
        }
    }

    async fn place_welcome(
        &self,
        host: &str,
        _: &str,
        text: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut placed = self.placed.lock().expect("nobody panicked");
        placed.push((host.to_owned(), text.to_vec()));
        Ok(())
    }
}

#[tokio::test]
async fn over_ssh_only_the_machine_with_the_key_may_join_and_the_reply_has_no_secret() {
    let link = Arc::new(Reaches {
        key: "SHA256:right\n",
        placed: std::sync::Mutex::default(),
    });
    let given = ClusterLink(link.clone());
    let mut server = TestServer::start_with(|options| options.services.cluster = Some(given)).await;
    let ask = async |key: &str, place: &str, host: &str| {
        let mut joining = joining("s2", 8151);
        joining.member_address = format!("{host}:8151");
        let request = ClusterSshJoinRequest {
            place: place.to_owned(),
            key: key.to_owned(),
            server: joining,
        };
        let stranger = server.stranger();
        let asked = stranger.post::<_, ClusterSshWelcome>("/v1/cluster/join-over-ssh", &request);
        asked.await.map_err(|error| error.status())
    };
    let place = "0a".repeat(32);
    let unnamed = ask("SHA256:right", &place, "192.0.2.2").await;
    assert_eq!(unnamed, Err(Some(403)), "no operator has named it");
    let expect = async |host: &str| {
        let request = ExpectServerRequest {
            host: host.to_owned(),
            ttl_seconds: 60,
        };
        let path = "/v1/cluster/expected/s2";
        let named = server.operator.post::<_, ()>(path, &request).await;
        named.map_err(|error| error.status())
    };
    assert_eq!(expect("-oProxyCommand=reboot").await, Err(Some(400)));
    expect("192.0.2.9").await.expect("named");
    let moved = ask("SHA256:right", &place, "192.0.2.2").await;
    assert_eq!(moved, Err(Some(403)), "it was named with another address");
    assert!(link.placed.lock().expect("nobody panicked").is_empty());
    expect("192.0.2.3").await.expect("named");
    let elsewhere = ask("SHA256:right", &place, "192.0.2.3").await;
    assert_eq!(elsewhere, Err(Some(403)), "it cannot be reached");
    expect("192.0.2.2").await.expect("named");
    let wrong = ask("SHA256:wrong", &place, "192.0.2.2").await;
    assert_eq!(wrong, Err(Some(403)), "another key is on that machine");
    let hostile = ask("SHA256:right", "../../etc", "192.0.2.2").await;
    assert_eq!(hostile, Err(Some(400)));
    let hostile = ask("SHA256:right", &place, "-oProxyCommand=reboot").await;
    assert_eq!(hostile, Err(Some(400)));
    assert!(link.placed.lock().expect("nobody panicked").is_empty());
    let let_in = ask("SHA256:right", &place, "192.0.2.2").await;
    assert!(let_in.is_ok(), "{let_in:?}");
    let placed = link.placed.lock().expect("nobody panicked").clone();
    assert_eq!(placed.len(), 1);
    let welcome: ClusterWelcome = serde_json::from_slice(&placed[0].1).expect("a welcome");
    assert_eq!(
        (placed[0].0.as_str(), welcome.members.len()),
        ("192.0.2.2", 1)
    );
    let again = ask("SHA256:right", &place, "192.0.2.2").await;
    assert_eq!(
        again,
        Err(Some(403)),
        "once, until an operator names it again"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_speaks_no_ssh_says_so() {
    let mut server = member_server().await;
    let request = ClusterSshJoinRequest {
        place: "0a".repeat(32),
        key: "SHA256:right".to_owned(),
        server: joining("s2", 8151),
    };
    let refused = server
        .stranger()
        .post::<_, ClusterSshWelcome>("/v1/cluster/join-over-ssh", &request)
        .await;
    assert_eq!(refused.expect_err("not set").status(), Some(409));
    server.shutdown().await;
}

#[tokio::test]
async fn a_dead_server_is_removed_unless_two_would_be_left_and_may_join_again() {
    let mut server = member_server().await;
    for name in ["s2", "s3", "s9"] {
        let token = invitation(&server).await;
        join(&server, &request(name, &token, 8151))
            .await
            .expect("it is let in");
    }
    let remove = async |name: &str| {
        let path = format!("/v1/cluster/members/{name}");
        let removed = server.operator.delete::<()>(&path).await;
        removed.map_err(|error| error.to_string())
    };
    let two = remove("s9").await.expect_err("two would be left");
    assert!(two.contains("two servers would be left"), "{two}");
    let token = invitation(&server).await;
    join(&server, &request("s4", &token, 8151))
        .await
        .expect("it is let in");
    remove("s9").await.expect("it is dead, and keeps nothing");
    remove("s9").await.expect_err("it is gone");
    let token = invitation(&server).await;
    let again = join(&server, &request("s9", &token, 9999)).await;
    let again = again.expect("as a new server, it may come again");
    assert_eq!(again.members.len(), 4);
    server.shutdown().await;
}
