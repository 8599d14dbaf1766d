# @summary The watcher by its original name, with its original parameters. Use `trigger::watch` in new code.
#
# @param trigger_hostname
#   The name of this node in triggers.
# @param etcdctl_prefix
#   The directory of the keys of hosts.
# @param run_cmd
#   The command to run.
# @param etcdctl_cmd
#   Ignored: etcdctl is not used.
# @param etcdwatch_pwd
#   Ignored: there is no script.
class trigger::watch::etcd (
  String[1] $trigger_hostname = $trusted['certname'],
  String[1] $etcdctl_prefix = '/puppet_trigger/events/hosts',
  String[1] $run_cmd = 'puppet agent --onetime --no-daemonize',
  Optional[String] $etcdctl_cmd = undef,
  Optional[String] $etcdwatch_pwd = undef,
) {
  class { 'trigger::watch':
    host      => $trigger_hostname,
    keyprefix => regsubst($etcdctl_prefix, '/hosts/?\z', ''),
    run_cmd   => $run_cmd,
  }
}
