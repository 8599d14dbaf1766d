//! Cues of a run that do not pass through Bunraku servers.

use std::error::Error;
use std::ffi::OsString;

use async_trait::async_trait;
use bunraku_agent::CueTransport;
use bunraku_engine::{CueProvider, EtcdKeys};
use bunraku_model::TriggerName;
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use clap::Parser;

use super::{EtcdArguments, fire, mcollective, own_name};
use crate::failure::Failure;

/// The transports etcd and MCollective, for `trigger` resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherTransports;

#[async_trait]
impl CueTransport for OtherTransports {
    async fn fire(
        &self,
        provider: &CueProvider,
        trigger: &TriggerName,
        request: &FireTrigger,
    ) -> Result<FireReply, Box<dyn Error + Send + Sync>> {
        let fired = async {
            match provider {
                CueProvider::Etcd(keys) => {
                    let from = own_name(None)?;
                    fire(&arguments(keys)?, trigger, &from, &[], request).await
                }
                CueProvider::Mcollective => {
                    mcollective::fire_quietly(trigger, &request.hosts).await?;
                    Ok(all(request))
                }
                CueProvider::Bunraku | CueProvider::Dummy => Ok(all(request)),
            }
        };
        fired
            .await
            .map_err(|failure: Failure| failure.text().into())
    }
}

fn all(request: &FireTrigger) -> FireReply {
    FireReply::Fired {
        hosts: request.hosts.clone(),
        unknown: Vec::new(),
    }
}

/// The flags of `bunraku trigger fire`, so that a resource has their defaults.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    etcd: EtcdArguments,
}

fn arguments(keys: &EtcdKeys) -> Result<EtcdArguments, Failure> {
    let mut words: Vec<OsString> = vec!["trigger".into()];
    if !keys.endpoints.is_empty() {
        words.extend(["--etcd".into(), keys.endpoints.join(",").into()]);
    }
    if let Some(prefix) = &keys.prefix {
        words.extend(["--prefix".into(), prefix.into()]);
    }
    if let Some(ttl) = keys.ttl {
        words.extend(["--key-ttl".into(), format!("{}s", ttl.as_secs()).into()]);
    }
    let flags = Flags::try_parse_from(words);
    flags
        .map(|flags| flags.etcd)
        .map_err(|error| Failure::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_resource_sets_what_it_names_and_has_the_defaults_of_the_command() {
        let some = arguments(&EtcdKeys {
            endpoints: vec!["http://a:1".to_owned(), "http://b:2".to_owned()],
            prefix: Some("/cues".to_owned()),
            ttl: Some(Duration::from_secs(60)),
        });
        let some = some.expect("arguments");
        assert_eq!(some.etcd, ["http://a:1", "http://b:2"]);
        assert_eq!(
            (some.prefix.as_str(), some.key_ttl.0.as_secs()),
            ("/cues", 60)
        );
        let none = arguments(&EtcdKeys::default()).expect("arguments");
        assert_eq!(
            (none.prefix.as_str(), none.key_ttl.0.as_secs()),
            ("/puppet_trigger/events", 180)
        );
    }
}
