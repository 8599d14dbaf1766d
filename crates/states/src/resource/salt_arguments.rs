//! The arguments of Salt's state functions, to tell an argument that Salt has and the engine lacks from a
//! misspelled one.

use serde_json::Value;

/// A state function of Salt.
struct SaltFunction {
    name: &'static str,
    /// Salt ignores arguments that it does not know.
    takes_anything: bool,
    /// Separated by spaces.
    arguments: &'static str,
    /// The arguments that are true unless a state says otherwise. All others are false or empty.
    true_by_default: &'static str,
}

/// What an argument that the engine does not have means to Salt.
#[derive(PartialEq, Debug)]
pub(super) enum SaltMeaning {
    /// Salt knows it, and this value is its default: nothing is lost.
    Default,
    /// Salt knows it.
    Unsupported,
    /// Salt ignores it: it belongs to other functions.
    Ignored,
    /// Salt does not know it, or only as the name of a variable.
    Unknown,
}

pub(super) fn meaning(function: &str, argument: &str, value: &Value) -> SaltMeaning {
    let Some(known) = FUNCTIONS.iter().find(|known| known.name == function) else {
        return SaltMeaning::Unknown;
    };
    if is_in(known.arguments, argument) {
        let is_default = match value {
            Value::Null => true,
            Value::Bool(truth) => *truth == is_in(known.true_by_default, argument),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        return if is_default {
            SaltMeaning::Default
        } else {
            SaltMeaning::Unsupported
        };
    }
    let is_elsewhere = FUNCTIONS
        .iter()
        .any(|other| is_in(other.arguments, argument));
    if known.takes_anything && is_elsewhere {
        SaltMeaning::Ignored
    } else {
        SaltMeaning::Unknown
    }
}

fn is_in(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// Returns true if Salt's function has the argument.
pub(super) fn has(function: &str, argument: &str) -> bool {
    let known = FUNCTIONS.iter().find(|known| known.name == function);
    known.is_some_and(|known| is_in(known.arguments, argument))
}

const fn function(
    name: &'static str,
    takes_anything: bool,
    arguments: &'static str,
    true_by_default: &'static str,
) -> SaltFunction {
    SaltFunction {
        name,
        takes_anything,
        arguments,
        true_by_default,
    }
}

/// Read from the signatures of Salt 3008.3, without arguments for Windows.
static FUNCTIONS: &[SaltFunction] = &[
    function(
        "archive.extracted",
        true,
        "source source_hash source_hash_name source_hash_update skip_files_list_verify \
         skip_verify password options list_options force overwrite clean clean_parent \
         user group if_missing trim_output use_cmd_unzip extract_perms enforce_toplevel \
         enforce_ownership_on archive_format use_etag signature source_hash_sig \
         signed_by_any signed_by_all keyring gnupghome sig_backend",
        "extract_perms enforce_toplevel",
    ),
    function(
        "cmd.run",
        true,
        "cwd root runas password shell env prepend_path stateful output_loglevel \
         hide_output timeout ignore_timeout use_vt success_retcodes success_stdout \
         success_stderr stdin umask bg clean_env binds raise_err",
        "",
    ),
    function(
        "cmd.wait",
        true,
        "cwd root runas shell env stateful output_loglevel hide_output use_vt \
         success_retcodes success_stdout success_stderr",
        "",
    ),
    function("cron.absent", true, "user identifier special", ""),
    function(
        "cron.present",
        false,
        "user minute hour daymonth month dayweek comment commented identifier special",
        "",
    ),
    function("file.absent", true, "", ""),
    function(
        "file.append",
        false,
        "text makedirs source source_hash template sources source_hashes defaults \
         context ignore_whitespace show_changes",
        "ignore_whitespace show_changes",
    ),
    function(
        "file.blockreplace",
        false,
        "marker_start marker_end source source_hash template sources source_hashes \
         defaults context content append_if_not_found prepend_if_not_found backup \
         show_changes append_newline insert_before_match insert_after_match",
        "show_changes",
    ),
    function(
        "file.directory",
        true,
        "user group recurse max_depth dir_mode file_mode makedirs clean exclude_pat \
         follow_symlinks force backupname allow_symlink children_only",
        "allow_symlink win_inheritance",
    ),
    function(
        "file.line",
        false,
        "content match mode location before after show_changes backup quiet indent \
         create user group file_mode",
        "show_changes indent",
    ),
    function(
        "file.managed",
        true,
        "source source_hash source_hash_name keep_source user group mode attrs template \
         makedirs dir_mode context replace defaults backup show_changes create contents \
         tmp_dir tmp_ext contents_pillar contents_grains contents_newline \
         contents_delimiter encoding encoding_errors allow_empty follow_symlinks \
         check_cmd skip_verify selinux verify_ssl use_etag signature source_hash_sig \
         signed_by_any signed_by_all keyring gnupghome ignore_ordering \
         ignore_whitespace ignore_comment_characters new_file_diff sig_backend",
        "keep_source replace show_changes create contents_newline allow_empty \
         follow_symlinks win_inheritance verify_ssl",
    ),
    function(
        "file.prepend",
        false,
        "text makedirs source source_hash template sources source_hashes defaults \
         context header show_changes",
        "show_changes",
    ),
    function(
        "file.recurse",
        true,
        "source keep_source clean user group dir_mode file_mode sym_mode template \
         context replace defaults include_empty backup include_pat exclude_pat maxdepth \
         keep_symlinks force_symlinks merge",
        "keep_source replace win_inheritance",
    ),
    function(
        "file.replace",
        false,
        "pattern repl count flags bufsize append_if_not_found prepend_if_not_found \
         not_found_content backup show_changes ignore_if_missing backslash_literal \
         encoding",
        "show_changes",
    ),
    function(
        "file.symlink",
        true,
        "target force backupname makedirs user group mode atomic \
         disallow_copy_and_unlink inherit_user_and_group follow_symlinks",
        "follow_symlinks",
    ),
    function(
        "git.cloned",
        false,
        "target branch user password identity https_user https_pass output_encoding",
        "",
    ),
    function(
        "git.detached",
        true,
        "rev target remote user password force_clone force_checkout fetch_remote \
         hard_reset submodules identity https_user https_pass output_encoding",
        "fetch_remote",
    ),
    function(
        "git.latest",
        true,
        "target rev branch user password update_head force_checkout force_clone \
         force_fetch force_reset submodules bare mirror remote fetch_tags sync_tags \
         depth identity https_user https_pass refspec_branch refspec_tag \
         output_encoding",
        "update_head fetch_tags sync_tags",
    ),
    function("group.absent", false, "local", ""),
    function(
        "group.present",
        false,
        "gid system addusers delusers members non_unique local",
        "",
    ),
    function("host.absent", false, "ip", ""),
    function("host.present", false, "ip comment clean", ""),
    function("mount.fstab_absent", false, "fs_file mount_by config", ""),
    function(
        "mount.fstab_present",
        false,
        "fs_file fs_vfstype fs_mntops fs_freq fs_passno mount_by config mount match_on \
         not_change fs_mount",
        "mount fs_mount",
    ),
    function(
        "mount.mounted",
        true,
        "device fstype mkmnt opts dump pass_num config persist mount user match_on \
         device_name_regex extra_mount_invisible_options extra_mount_invisible_keys \
         extra_mount_ignore_fs_keys extra_mount_translate_options hidden_opts \
         bind_mount_copy_active_opts fs_freq",
        "persist mount bind_mount_copy_active_opts",
    ),
    function("mount.unmounted", true, "device config persist user", ""),
    function("pkg.held", true, "version pkgs replace", ""),
    function(
        "pkg.installed",
        true,
        "version refresh fromrepo skip_verify skip_suggestions pkgs sources \
         allow_updates pkg_verify normalize ignore_epoch reinstall update_holds hold \
         install_recommends cache_valid_time resolve_capabilities \
         report_reboot_exit_codes bin_env env extra_args force_conf_new disablerepo \
         enablerepo split_arch downloadonly",
        "normalize",
    ),
    function(
        "pkg.latest",
        true,
        "refresh fromrepo skip_verify pkgs watch_flags install_recommends \
         cache_valid_time",
        "watch_flags",
    ),
    function(
        "pkg.purged",
        true,
        "version pkgs normalize ignore_epoch",
        "normalize",
    ),
    function(
        "pkg.removed",
        true,
        "version pkgs normalize ignore_epoch",
        "normalize",
    ),
    function("pkgrepo.absent", true, "", ""),
    function(
        "pkgrepo.managed",
        true,
        "ppa copr aptkey humanname baseurl mirrorlist metalink gpgcheck gpgkey \
         gpgautoimport key_url key_text keyid keyserver ppa_auth dist comps \
         architectures disabled enabled file refresh refresh_db consolidate clean_file \
         comments signedby priority skip_if_unavailable arch",
        "aptkey",
    ),
    function("service.dead", true, "enable sig init_delay", ""),
    function("service.disabled", true, "", ""),
    function("service.enabled", true, "", ""),
    function("service.masked", false, "runtime", ""),
    function(
        "service.running",
        true,
        "enable sig init_delay unmask unmask_runtime no_block wait",
        "",
    ),
    function("service.unmasked", false, "runtime", ""),
    function(
        "ssh_auth.absent",
        false,
        "user enc comment source options config fingerprint_hash_type",
        "",
    ),
    function(
        "ssh_auth.present",
        true,
        "user enc comment source options config fingerprint_hash_type",
        "",
    ),
    function("sysctl.present", false, "value config", ""),
    function("user.absent", false, "purge force local", ""),
    function(
        "user.present",
        false,
        "uid gid usergroup groups optional_groups remove_groups home createhome \
         persist_home password hash_password enforce_password empty_password shell \
         unique system fullname roomnumber workphone homephone other loginclass date \
         mindays maxdays inactdays warndays expire nologinit allow_uid_change \
         allow_gid_change password_lock local",
        "remove_groups createhome enforce_password unique",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_argument_of_salt_is_told_from_a_misspelled_one() {
        for (function, argument, value, expected) in [
            (
                "archive.extracted",
                "options",
                json!("--strip 1"),
                SaltMeaning::Unsupported,
            ),
            (
                "archive.extracted",
                "trim_output",
                json!(false),
                SaltMeaning::Default,
            ),
            (
                "archive.extracted",
                "enforce_toplevel",
                json!(true),
                SaltMeaning::Default,
            ),
            (
                "archive.extracted",
                "enforce_toplevel",
                json!(false),
                SaltMeaning::Unsupported,
            ),
            ("file.absent", "contents", json!("x"), SaltMeaning::Ignored),
            ("file.absent", "contnts", json!("x"), SaltMeaning::Unknown),
            (
                "group.present",
                "contents",
                json!("x"),
                SaltMeaning::Unknown,
            ),
            ("nope.nope", "contents", json!("x"), SaltMeaning::Unknown),
        ] {
            assert_eq!(
                meaning(function, argument, &value),
                expected,
                "{function} {argument}"
            );
        }
    }
}
