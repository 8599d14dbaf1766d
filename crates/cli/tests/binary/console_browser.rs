//! The console in a real browser: Debian's Chromium, without a screen.

use bunraku_testkit::{appears, eventually};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use bunraku_store::testing::free_port;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use crate::console::Console;
use crate::support::{Site, all_output};

/// The driver and the browser that it starts: one process group, which ends with the test.
struct Driver(Child);

impl Driver {
    fn start(port: u16) -> Self {
        let child = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver starts; scripts/setup installs it");
        Self(child)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

async fn browser(port: u16, site: &Site) -> Client {
    let profile = site.path("profile");
    let options = json!({"args": [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        format!("--user-data-dir={}", profile.display()),
    ]});
    let mut wanted = serde_json::Map::new();
    wanted.insert("goog:chromeOptions".to_owned(), options);
    let url = format!("http://127.0.0.1:{port}");
    appears(async || {
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder
            .capabilities(wanted.clone())
            .connect(&url)
            .await
            .ok()
    })
    .await
}

async fn shows(client: &Client, selector: &str, wanted: &str) {
    eventually(async || {
        let Ok(found) = client.find(Locator::Css(selector)).await else {
            return false;
        };
        found.text().await.is_ok_and(|text| text.contains(wanted))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_follows_what_happens_and_says_when_it_cannot() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let mut console = Console::start(&site, &server);
    let port = free_port();
    let _driver = Driver::start(port);
    let browser = browser(port, &site).await;
    let nodes = format!("http://{}/nodes?key={}", console.address, console.key);
    browser.goto(&nodes).await.expect("it goes there");
    let now = browser.current_url().await.expect("it is somewhere");
    assert_eq!(now.query(), None, "the address bar forgot the key");
    shows(&browser, "tbody tr", "idle").await;
    let radius = "return getComputedStyle(document.querySelector('.pill')).borderTopWidth";
    let radius = browser.execute(radius, Vec::new()).await.expect("a style");
    assert_eq!(radius, json!("1px"), "its style is allowed");

    let disabled = server.operator(&["node", "disable", "web-1", "--reason", "a new disk"]);
    assert!(disabled.status.success(), "{}", all_output(&disabled));
    shows(&browser, "tbody tr", "a new disk").await;
    let link = browser.find(Locator::LinkText("web-1")).await;
    link.expect("a link").click().await.expect("a page");
    shows(&browser, "h1", "web-1").await;
    server.running.kill();
    shows(&browser, "main", "No server answers").await;
    let _server = site.server("server", server.address.port(), &[]);
    shows(&browser, "h1", "web-1").await;
    assert_eq!(console.running.end(), Some(0));
    shows(&browser, "footer", "No answer from the console since").await;
    browser.close().await.expect("it ends");
}
