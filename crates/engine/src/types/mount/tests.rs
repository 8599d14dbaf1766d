//! Mounts: decisions, and a real table.

use expect_test::expect;
use serde_json::json;

use crate::types::testing_root::Machine;

#[test]
fn a_file_system_is_mounted_with_its_line_changed_and_taken_away() {
    let machine = Machine::new();
    machine.write(
        "/etc/fstab",
        "# static\n/dev/sda1 / ext4 errors=remount-ro 0 1\n",
    );
    let desired = |ensure: &str, options: &str| {
        json!([{"type": "Mount", "title": "/srv/a cache", "parameters": {"ensure": ensure,
            "device": "tmpfs", "fstype": "tmpfs", "options": options, "mkmnt": true}}])
    };
    let transcript = machine.converges(desired("mounted", "size=1m"));
    expect![[r#"
        Mount[/srv/a cache] changed
          fstab: - -> present
          ensure: unmounted -> mounted
    "#]]
    .assert_eq(&transcript);
    let path = machine.path("/srv/a cache");
    assert!(
        std::fs::write(path.join("big"), vec![0; 2 << 20]).is_err(),
        "1 MiB is the limit"
    );
    std::fs::remove_file(path.join("big")).unwrap();
    machine.converges(desired("mounted", "size=8m"));
    std::fs::write(path.join("big"), vec![0; 2 << 20]).expect("remounted with the new size");
    expect![[r#"
        # static
        /dev/sda1 / ext4 errors=remount-ro 0 1
        tmpfs	/srv/a\040cache	tmpfs	size=8m	0	0
    "#]]
    .assert_eq(&machine.read("/etc/fstab"));
    let transcript = machine.converges(desired("absent", "size=8m"));
    expect![[r#"
        Mount[/srv/a cache] changed
          fstab: present -> absent
          ensure: mounted -> absent
    "#]]
    .assert_eq(&transcript);
    assert!(!path.join("big").exists());
}

#[test]
fn a_mount_that_fails_says_why() {
    let machine = Machine::new();
    let transcript = machine.apply(
        json!([{"type": "Mount", "title": "/nowhere", "parameters": {
        "ensure": "mounted", "device": "tmpfs", "fstype": "tmpfs", "persist": false}}]),
    );
    assert!(
        transcript.contains("mount failed with exit code 32"),
        "{transcript}"
    );
    assert!(!machine.path("/etc/fstab").exists());
}
