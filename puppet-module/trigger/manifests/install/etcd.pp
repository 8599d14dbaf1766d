# @summary Installs one etcd member from the distribution's package, for development and demonstrations.
#
# It serves both APIs of etcd, for the watchers of the original module and of this one. In production,
# use a module that is made for etcd.
#
# @param etcd_name
#   The name of the member.
# @param etcd_ip
#   The address of the member.
# @param data_dir
#   The directory for its data.
# @param discovery_url
#   The URL through which members find each other.
# @param package_name
#   The package with the server.
# @param service_name
#   The name of its service.
# @param config_file
#   The file with its environment variables.
# @param config_hash
#   More environment variables, such as `{ 'ETCD_LOG_LEVEL' => 'warn' }`.
# @param hosts
#   Ignored.
# @param peers
#   Ignored: pass `ETCD_INITIAL_CLUSTER` in `config_hash`.
# @param version
#   Ignored: the distribution decides.
# @param target
#   Ignored.
class trigger::install::etcd (
  String[1] $etcd_name = $facts['networking']['fqdn'],
  String[1] $etcd_ip = $facts['networking']['ip'],
  Pattern[/\A\//] $data_dir = '/var/lib/etcd/trigger',
  Optional[String[1]] $discovery_url = undef,
  String[1] $package_name = 'etcd-server',
  String[1] $service_name = 'etcd',
  Pattern[/\A\//] $config_file = '/etc/default/etcd',
  Hash[String[1], String] $config_hash = {},
  Array $hosts = [],
  Array $peers = [],
  Optional[String] $version = undef,
  Optional[String] $target = undef,
) {
  $discovery = $discovery_url ? {
    undef   => {},
    default => { 'ETCD_DISCOVERY' => $discovery_url },
  }
  $settings = {
    'ETCD_NAME'                        => $etcd_name,
    'ETCD_DATA_DIR'                    => $data_dir,
    'ETCD_ENABLE_V2'                   => 'true',
    'ETCD_LISTEN_CLIENT_URLS'          => "http://127.0.0.1:2379,http://${etcd_ip}:2379",
    'ETCD_ADVERTISE_CLIENT_URLS'       => "http://${etcd_ip}:2379",
    'ETCD_LISTEN_PEER_URLS'            => "http://${etcd_ip}:2380",
    'ETCD_INITIAL_ADVERTISE_PEER_URLS' => "http://${etcd_ip}:2380",
    'ETCD_INITIAL_CLUSTER'             => "${etcd_name}=http://${etcd_ip}:2380",
  } + $discovery + $config_hash

  package { $package_name:
    ensure => installed,
  }

  file { $config_file:
    ensure  => file,
    owner   => 'root',
    group   => 'root',
    mode    => '0644',
    content => $settings.map |$name, $value| { "${name}=\"${value}\"\n" }.join(''),
    require => Package[$package_name],
  }

  service { $service_name:
    ensure    => running,
    enable    => true,
    subscribe => File[$config_file],
  }
}
