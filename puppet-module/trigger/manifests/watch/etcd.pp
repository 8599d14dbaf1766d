# @summary The name that the watcher had before. Use `trigger::watch`.
#
# @param run_cmd
#   What a trigger starts.
class trigger::watch::etcd (
  String[1] $run_cmd = 'puppet agent --onetime --no-daemonize',
) {
  class { 'trigger::watch':
    run_cmd => $run_cmd,
  }
}
