# @summary Runs a command on this node when a trigger names it, through etcd.
#
# The `bunraku` provider does not need this: the agent starts the runs.
#
# @param run_cmd
#   The command to run: `puppet agent --onetime --no-daemonize`,
#   `puppet apply manifest.pp`, or any command with its arguments.
# @param endpoints
#   The client addresses of etcd.
# @param keyprefix
#   The prefix of every key.
# @param host
#   The name of this node in triggers.
# @param bunraku
#   The path of the program.
# @param state_file
#   Where the watcher stores its position.
# @param unit_directory
#   The directory for systemd units.
# @param manage_service
#   Whether to start the service and keep it running.
class trigger::watch (
  String[1] $run_cmd = 'puppet agent --onetime --no-daemonize',
  Array[String[1], 1] $endpoints = ['http://127.0.0.1:2379'],
  String[1] $keyprefix = '/trigger',
  String[1] $host = $trusted['certname'],
  Pattern[/\A\//] $bunraku = '/usr/bin/bunraku',
  Pattern[/\A\//] $state_file = '/var/lib/bunraku/trigger-watch.json',
  Pattern[/\A\//] $unit_directory = '/etc/systemd/system',
  Boolean $manage_service = true,
) {
  file { "${unit_directory}/bunraku-trigger-watch.service":
    ensure  => file,
    owner   => 'root',
    group   => 'root',
    mode    => '0644',
    content => epp('trigger/watch.service.epp', {
      'bunraku'    => $bunraku,
      'endpoints'  => join($endpoints, ','),
      'keyprefix'  => $keyprefix,
      'host'       => $host,
      'state_file' => $state_file,
      'run_cmd'    => $run_cmd,
    }),
  }

  if $manage_service {
    service { 'bunraku-trigger-watch':
      ensure    => running,
      enable    => true,
      subscribe => File["${unit_directory}/bunraku-trigger-watch.service"],
    }
  }
}
