//! Facts of machines that are only directories: several distributions, and machines with missing,
//! broken or hostile files.
//!
//! The distributions were checked against Facter 4.3 with the same files laid over /etc. The
//! expected values are those that it printed, except for Alpine's `os.distro`, which Facter takes
//! from `lsb_release` if that is installed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use bunraku_agent::facts::{CollectedFacts, FactOptions, collect};
use expect_test::{Expect, expect};
use serde_json::{Map, Value};
use tempfile::TempDir;

fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn collect_facts(root: &TempDir) -> CollectedFacts {
    collect(&FactOptions {
        custom: serde_json::Map::new(),
        root: root.path().to_owned(),
        external_dirs: Vec::new(),
        external_timeout: Duration::from_secs(60),
        overrides: Map::new(),
    })
}

fn check(files: &[(&str, &str)], fact: &str, expect: Expect) {
    let root = machine(files);
    let found = collect_facts(&root).facts;
    let said = found.get(fact).map_or("none".to_owned(), |value| {
        serde_json::to_string_pretty(value).unwrap()
    });
    expect.assert_eq(&said);
}

fn check_os(files: &[(&str, &str)], expect: Expect) {
    let mut all = vec![("proc/sys/kernel/arch", "x86_64\n")];
    all.extend(files);
    check(&all, "os", expect);
}

#[test]
fn debian_12() {
    check_os(
        &[
            (
                "etc/os-release",
                "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n",
            ),
            ("etc/debian_version", "12.11\n"),
        ],
        expect![[r#"
            {
              "architecture": "amd64",
              "distro": {
                "codename": "bookworm",
                "description": "Debian GNU/Linux 12 (bookworm)",
                "id": "Debian",
                "release": {
                  "full": "12.11",
                  "major": "12",
                  "minor": "11"
                }
              },
              "family": "Debian",
              "hardware": "x86_64",
              "name": "Debian",
              "release": {
                "full": "12.11",
                "major": "12",
                "minor": "11"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn ubuntu_24_04() {
    check_os(
        &[
            (
                "etc/os-release",
                "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nVERSION=\"24.04.1 LTS (Noble Numbat)\"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n",
            ),
            ("etc/debian_version", "trixie/sid\n"),
        ],
        expect![[r#"
            {
              "architecture": "amd64",
              "distro": {
                "codename": "noble",
                "description": "Ubuntu 24.04.1 LTS",
                "id": "Ubuntu",
                "release": {
                  "full": "24.04",
                  "major": "24.04"
                }
              },
              "family": "Debian",
              "hardware": "x86_64",
              "name": "Ubuntu",
              "release": {
                "full": "24.04",
                "major": "24.04"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn rocky_9() {
    check_os(
        &[
            (
                "etc/os-release",
                "NAME=\"Rocky Linux\"\nVERSION=\"9.4 (Blue Onyx)\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\nPLATFORM_ID=\"platform:el9\"\nPRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\n",
            ),
            (
                "etc/redhat-release",
                "Rocky Linux release 9.4 (Blue Onyx)\n",
            ),
            (
                "proc/self/mounts",
                "selinuxfs /sys/fs/selinux selinuxfs rw,nosuid,noexec,relatime 0 0\n",
            ),
            ("sys/fs/selinux/enforce", "1"),
            ("sys/fs/selinux/policyvers", "33"),
            (
                "etc/selinux/config",
                "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
            ),
        ],
        expect![[r#"
            {
              "architecture": "x86_64",
              "distro": {
                "codename": "Blue Onyx",
                "description": "Rocky Linux release 9.4 (Blue Onyx)",
                "id": "Rocky",
                "release": {
                  "full": "9.4",
                  "major": "9",
                  "minor": "4"
                }
              },
              "family": "RedHat",
              "hardware": "x86_64",
              "name": "Rocky",
              "release": {
                "full": "9.4",
                "major": "9",
                "minor": "4"
              },
              "selinux": {
                "config_mode": "enforcing",
                "config_policy": "targeted",
                "current_mode": "enforcing",
                "enabled": true,
                "enforced": true,
                "policy_version": "33"
              }
            }"#]],
    );
}

#[test]
fn alpine() {
    check_os(
        &[
            (
                "etc/os-release",
                "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\nPRETTY_NAME=\"Alpine Linux v3.20\"\n",
            ),
            ("etc/alpine-release", "3.20.3\n"),
        ],
        expect![[r#"
            {
              "architecture": "x86_64",
              "family": "Alpine",
              "hardware": "x86_64",
              "name": "Alpine",
              "release": {
                "full": "3.20.3",
                "major": "3",
                "minor": "20"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn opensuse_leap() {
    check_os(
        &[(
            "usr/lib/os-release",
            "NAME=\"openSUSE Leap\"\nVERSION=\"15.6\"\nID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\nVERSION_ID=\"15.6\"\nPRETTY_NAME=\"openSUSE Leap 15.6\"\n",
        )],
        expect![[r#"
            {
              "architecture": "x86_64",
              "distro": {
                "codename": "n/a",
                "description": "openSUSE Leap 15.6",
                "id": "SUSE",
                "release": {
                  "full": "15.6",
                  "major": "15",
                  "minor": "6"
                }
              },
              "family": "Suse",
              "hardware": "x86_64",
              "name": "openSUSE",
              "release": {
                "full": "15.6",
                "major": "15",
                "minor": "6"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn amazon_linux_2023() {
    check_os(
        &[
            (
                "etc/os-release",
                "NAME=\"Amazon Linux\"\nVERSION=\"2023\"\nID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\nPRETTY_NAME=\"Amazon Linux 2023.6.20241010\"\n",
            ),
            (
                "etc/system-release",
                "Amazon Linux release 2023.6.20241010 (Amazon Linux)\n",
            ),
        ],
        expect![[r#"
            {
              "architecture": "x86_64",
              "distro": {
                "codename": "Amazon Linux",
                "description": "Amazon Linux release 2023.6.20241010 (Amazon Linux)",
                "id": "Amazon",
                "release": {
                  "full": "2023.6.20241010",
                  "major": "2023",
                  "minor": "6"
                }
              },
              "family": "RedHat",
              "hardware": "x86_64",
              "name": "Amazon",
              "release": {
                "full": "2023.6.20241010",
                "major": "2023",
                "minor": "6"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn linux_mint() {
    check_os(
        &[
            (
                "etc/os-release",
                "NAME=\"Linux Mint\"\nVERSION=\"21.3 (Virginia)\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\nPRETTY_NAME=\"Linux Mint 21.3\"\nVERSION_ID=\"21.3\"\nVERSION_CODENAME=virginia\n",
            ),
            ("etc/linuxmint/info", "RELEASE=21.3\nCODENAME=virginia\n"),
        ],
        expect![[r#"
            {
              "architecture": "amd64",
              "distro": {
                "codename": "virginia",
                "description": "Linux Mint 21.3",
                "id": "Linuxmint",
                "release": {
                  "full": "21.3",
                  "major": "21.3"
                }
              },
              "family": "Debian",
              "hardware": "x86_64",
              "name": "Linuxmint",
              "release": {
                "full": "21",
                "major": "21"
              },
              "selinux": {
                "enabled": false
              }
            }"#]],
    );
}

#[test]
fn disks_and_partitions_with_what_udev_noted() {
    let files = [
        ("sys/block/sda/device/model", "QEMU HARDDISK   \n"),
        ("sys/block/sda/device/vendor", "QEMU    \n"),
        ("sys/block/sda/queue/rotational", "0\n"),
        ("sys/block/sda/size", "2097152\n"),
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sda/sda1/partition", "1\n"),
        ("sys/block/sda/sda1/size", "2048\n"),
        ("sys/block/sda/sda1/dev", "8:1\n"),
        ("sys/block/dm-0/dm/name", "vg-root\n"),
        ("sys/block/dm-0/size", "4096\n"),
        ("sys/block/loop0/loop/backing_file", "/srv/disk.img\n"),
        ("sys/block/loop0/size", "nonsense\n"),
        (
            "run/udev/data/b8:0",
            "E:ID_SERIAL=long_1\nE:ID_SERIAL_SHORT=1\nE:ID_WWN=0x5000\n",
        ),
        (
            "run/udev/data/b8:1",
            "E:ID_FS_TYPE=ext4\nE:ID_FS_UUID=11-22\nE:ID_PART_ENTRY_UUID=33-01\n",
        ),
        (
            "proc/self/mounts",
            "/dev/sda1 /boot ext4 rw 0 0\n/dev/sda1 /mnt/again ext4 rw 0 0\n",
        ),
    ];
    check(
        &files,
        "disks",
        expect![[r#"
        {
          "sda": {
            "model": "QEMU HARDDISK",
            "serial": "1",
            "size": "1.00 GiB",
            "size_bytes": 1073741824,
            "type": "ssd",
            "vendor": "QEMU",
            "wwn": "0x5000"
          }
        }"#]],
    );
    check(
        &files,
        "partitions",
        expect![[r#"
        {
          "/dev/loop0": {
            "backing_file": "/srv/disk.img"
          },
          "/dev/mapper/vg-root": {
            "size": "2.00 MiB",
            "size_bytes": 2097152
          },
          "/dev/sda1": {
            "filesystem": "ext4",
            "mount": "/boot",
            "partuuid": "33-01",
            "size": "1.00 MiB",
            "size_bytes": 1048576,
            "uuid": "11-22"
          }
        }"#]],
    );
}

fn warnings(collected: &CollectedFacts) -> Vec<String> {
    let warnings = collected.warnings.iter();
    warnings.map(ToString::to_string).collect()
}

#[test]
fn an_empty_machine_gives_warnings_and_still_some_facts() {
    let collected = collect_facts(&machine(&[]));
    assert_eq!(collected.facts.get("timezone"), Some(&Value::from("UTC")));
    assert_eq!(
        collected.facts.get("fips_enabled"),
        Some(&Value::from(false))
    );
    let said = warnings(&collected);
    assert!(
        said.iter()
            .any(|line| line.contains("`memory`") && line.contains("proc/meminfo")),
        "{said:?}"
    );
    let groups: Vec<&str> = collected
        .durations
        .iter()
        .map(|(group, _)| *group)
        .collect();
    assert!(
        groups.contains(&"memory") && groups.contains(&"external"),
        "{groups:?}"
    );
}

#[test]
fn a_broken_group_leaves_the_others_alone() {
    let root = machine(&[
        ("proc/meminfo", "garbage\n"),
        ("proc/loadavg", "1.0 2.0 3.0 1/1 1\n"),
    ]);
    let collected = collect_facts(&root);
    assert_eq!(collected.facts.get("memory"), None);
    assert_eq!(
        collected.facts.get("load_averages.5m"),
        Some(&Value::from(2.0))
    );
}

#[test]
fn pipes_and_endless_files_do_not_hang_a_group() {
    let root = machine(&[("etc/hostname", "x\n")]);
    fs::create_dir_all(root.path().join("proc")).unwrap();
    let fifo = root.path().join("proc/meminfo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // Inside the root, this link leads nowhere; outside it, reading would never end.
    symlink("/dev/zero", root.path().join("proc/cpuinfo")).unwrap();
    let collected = collect_facts(&root);
    let said = warnings(&collected);
    assert!(
        said.iter().any(|line| line.contains("not a regular file")),
        "{said:?}"
    );
    assert_eq!(collected.facts.get("processors"), None);
}

#[test]
fn an_absolute_link_stays_within_the_root() {
    let root = machine(&[("usr/lib/other-release", "NAME=Inside\nID=inside\n")]);
    fs::create_dir_all(root.path().join("etc")).unwrap();
    symlink("/usr/lib/other-release", root.path().join("etc/os-release")).unwrap();
    let collected = collect_facts(&root);
    assert_eq!(collected.facts.get("os.name"), Some(&Value::from("Inside")));
}

#[test]
fn overrides_have_the_last_word() {
    let root = machine(&[("proc/sys/kernel/hostname", "real\n")]);
    let collected = collect(&FactOptions {
        root: root.path().to_owned(),
        overrides: Map::from_iter([("hostname".to_owned(), Value::from("made-up"))]),
        ..FactOptions::default()
    });
    assert_eq!(
        collected.facts.get("hostname"),
        Some(&Value::from("made-up"))
    );
    assert_eq!(
        collected.facts.get("networking.hostname"),
        Some(&Value::from("real"))
    );
}
