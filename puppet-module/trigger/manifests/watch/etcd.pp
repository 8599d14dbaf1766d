# @summary The older name of `trigger::watch`. Use that instead.
#
# @param run_cmd
#   The command to run.
class trigger::watch::etcd (
  String[1] $run_cmd = 'puppet agent --onetime --no-daemonize',
) {
  class { 'trigger::watch':
    run_cmd => $run_cmd,
  }
}
