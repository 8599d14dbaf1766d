# The database server, once per node.
class lamp::server {
  package { 'mysql-server': ensure => installed }
  -> service { 'mysql': ensure => running, enable => true }
}
