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
# @param etcd_api
#   The etcd API to watch: `v2`, `v3`, or both if etcd serves both (`auto`).
# @param etcd_ca
#   The file with the CA of etcd.
# @param etcd_certificate
#   The file with the client certificate for etcd.
# @param etcd_key
#   The file with the key of the client certificate.
# @param service_name
#   The name of the service.
# @param unit_directory
#   The directory for systemd units.
# @param manage_service
#   Whether to start the service and keep it running.
class trigger::watch (
  String[1] $run_cmd = 'puppet agent --onetime --no-daemonize',
  Array[String[1], 1] $endpoints = ['http://127.0.0.1:2379'],
  String[1] $keyprefix = '/puppet_trigger/events',
  String[1] $host = $trusted['certname'],
  Pattern[/\A\//] $bunraku = '/usr/bin/bunraku',
  Pattern[/\A\//] $state_file = '/var/lib/bunraku/trigger-watch.json',
  Enum['auto', 'v2', 'v3'] $etcd_api = 'auto',
  Optional[Pattern[/\A\//]] $etcd_ca = undef,
  Optional[Pattern[/\A\//]] $etcd_certificate = undef,
  Optional[Pattern[/\A\//]] $etcd_key = undef,
  String[1] $service_name = 'bunraku-trigger-watch',
  Pattern[/\A\//] $unit_directory = '/etc/systemd/system',
  Boolean $manage_service = true,
) {
  $tls = {
    '--etcd-ca'          => $etcd_ca,
    '--etcd-certificate' => $etcd_certificate,
    '--etcd-key'         => $etcd_key,
  }.filter |$_flag, $file| { $file }

  file { "${unit_directory}/${service_name}.service":
    ensure  => file,
    owner   => 'root',
    group   => 'root',
    mode    => '0644',
    content => epp('trigger/watch.service.epp', {
      'bunraku'    => $bunraku,
      'endpoints'  => join($endpoints, ','),
      'etcd_api'   => $etcd_api,
      'tls'        => $tls.map |$flag, $file| { "${flag} ${file} " }.join(''),
      'keyprefix'  => $keyprefix,
      'host'       => $host,
      'state_file' => $state_file,
      'run_cmd'    => $run_cmd,
    }),
  }

  if $manage_service {
    service { $service_name:
      ensure    => running,
      enable    => true,
      subscribe => File["${unit_directory}/${service_name}.service"],
    }
  }
}
