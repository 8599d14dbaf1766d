//! Grains of the operating system.

use serde_json::{Value, json};

use super::GrainSet;

/// Facter's name, Salt's `os`, and Salt's `osfullname` where it is not the distribution's own.
const NAMES: &[(&str, &str, Option<&str>)] = &[
    ("Archlinux", "Arch", Some("Arch Linux")),
    ("LinuxMint", "Mint", None),
    ("Mariner", "Mariner", None),
    ("ManjaroLinux", "Manjaro", None),
    ("OpenSuSE", "SUSE", Some("Leap")),
    ("OracleLinux", "OEL", Some("Oracle Linux Server")),
    ("Scientific", "ScientificLinux", None),
    ("SLED", "SUSE", Some("SLED")),
    ("SLES", "SUSE", Some("SLES")),
];

pub(super) fn add(grains: &mut GrainSet<'_>) {
    grains.put("kernel", grains.text("kernel"));
    grains.put("kernelrelease", grains.text("kernelrelease"));
    // Facter's `kernelversion` is a part of the release. Salt's is the build.
    grains.put("kernelversion", grains.text("platform.kernel_build"));
    grains.put(
        "kernelparams",
        grains.at("platform.kernel_parameters").cloned(),
    );
    for (grain, fact) in [
        ("init", "platform.init"),
        ("systemd", "platform.systemd"),
        ("locale_info", "platform.locale"),
        ("path", "path"),
        ("shell", "platform.shell"),
    ] {
        grains.put(grain, grains.at(fact).cloned());
    }
    let path = grains.text("path");
    let parts = path
        .as_deref()
        .map(|path| path.split(':').collect::<Vec<_>>());
    grains.put("systempath", parts.map(|parts| json!(parts)));
    grains.put("osarch", grains.text("os.architecture"));
    let hardware = grains.text("os.hardware");
    grains.put(
        "cpuarch",
        hardware.or_else(|| grains.text("os.architecture")),
    );
    if grains.text("kernel").as_deref() == Some("Linux") {
        grains.put("ps", json!("ps -efHww"));
    }
    distribution(grains);
    selinux(grains);
}

fn distribution(grains: &mut GrainSet<'_>) {
    let Some(facters) = grains.text("os.name") else {
        return;
    };
    let known = NAMES.iter().find(|(name, _, _)| *name == facters);
    let os = known
        .map_or(facters.as_str(), |(_, salts, _)| salts)
        .to_owned();
    let family = grains.text("os.family");
    let family = family.map(|family| match family.as_str() {
        "Archlinux" => "Arch".to_owned(),
        _ => family,
    });
    grains.put("os", json!(os));
    grains.put("os_family", family);
    let codename = grains.text("os.distro.codename");
    grains.put("oscodename", codename.clone());
    let named = known.and_then(|(_, _, full)| *full).map(str::to_owned);
    let full = named
        .or_else(|| grains.text("platform.os_name"))
        .or_else(|| {
            grains
                .text("os.distro.description")
                .map(|text| without_release(&text))
        })
        .unwrap_or_else(|| os.clone());
    grains.put("osfullname", json!(full));
    grains.put("lsb_distrib_id", json!(full));
    grains.put("lsb_distrib_codename", codename);
    let Some(release) = release(grains, &os) else {
        return;
    };
    let numbers = release.split('.').map(|part| match part.parse::<i64>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(part),
    });
    let info: Vec<Value> = numbers.collect();
    let short = ["Debian", "Raspbian", "AlmaLinux"].contains(&os.as_str());
    let name = if short { &os } else { &full };
    let version = match os.as_str() {
        "Ubuntu" | "Pop" => release.clone(),
        _ => release.split('.').next().unwrap_or(&release).to_owned(),
    };
    grains.put("osfinger", json!(format!("{name}-{version}")));
    grains.put(
        "osmajorrelease",
        info.first().filter(|first| first.is_i64()).cloned(),
    );
    grains.put("osrelease_info", json!(info));
    grains.put("lsb_distrib_release", json!(release));
    grains.put("osrelease", json!(release));
}

/// Returns the release of os-release. Facter reports the point release of Debian, which os-release
/// does not have.
fn release(grains: &GrainSet<'_>, os: &str) -> Option<String> {
    let full = grains.text("os.release.full");
    let major = grains.text("os.release.major");
    match os {
        "Debian" | "Raspbian" => major.or(full),
        _ => full.or(major),
    }
}

/// `Debian GNU/Linux 12 (bookworm)` is `Debian GNU/Linux`.
fn without_release(description: &str) -> String {
    let is_release =
        |word: &str| word == "release" || word.starts_with(|first: char| first.is_ascii_digit());
    let words: Vec<&str> = (description.split_whitespace())
        .take_while(|word| !is_release(word))
        .collect();
    words.join(" ")
}

fn selinux(grains: &mut GrainSet<'_>) {
    if grains.at("os.selinux.enabled") != Some(&Value::Bool(true)) {
        return;
    }
    let mode = grains.text("os.selinux.current_mode").unwrap_or_default();
    let mut letters = mode.chars();
    let capital = letters.next().map(|first| first.to_ascii_uppercase());
    let enforced: String = capital.into_iter().chain(letters).collect();
    grains.put("selinux", json!({"enabled": true, "enforced": enforced}));
}
