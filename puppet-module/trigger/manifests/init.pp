# @summary Watches for triggers through etcd: `trigger::watch`, with the package that contains the program.
#
# The `bunraku` provider does not need this: the agent starts the runs.
#
# @param package_name
#   The package to install. Without it, the program must be installed already.
# @param service_name
#   The name of the service.
class trigger (
  Optional[String[1]] $package_name = undef,
  String[1] $service_name = 'bunraku-trigger-watch',
) {
  if $package_name {
    package { $package_name:
      ensure => installed,
      before => Class['trigger::watch'],
    }
  }

  class { 'trigger::watch':
    service_name => $service_name,
  }
  contain trigger::watch
}
