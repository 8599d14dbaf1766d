# The nodes of the corpus: one definition each, over Debian's modules.
node 'ntp-1' { include ntp }
node 'ntp-2' { class { 'ntp': servers => ['ntp1.example.com', 'ntp2.example.com'], restrict => ['127.0.0.1'] } }
node 'ntp-3' { class { 'ntp': service_enable => false, service_ensure => 'stopped', driftfile => '/var/lib/ntp/d' } }
node 'chrony-1' { include chrony }
node 'chrony-2' { class { 'chrony': servers => ['a.example.com'], queryhosts => ['192.0.2.0/24'] } }
node 'apache-1' { include apache }
node 'apache-2' {
  class { 'apache': default_vhost => false, mpm_module => 'event' }
  apache::vhost { 'www.example.com': port => 80, docroot => '/srv/www', docroot_owner => 'www-data' }
}
node 'apache-3' {
  class { 'apache': default_vhost => false }
  apache::vhost { 'ssl.example.com': port => 443, ssl => true, docroot => '/srv/ssl', headers => ['set X-A "b"'] }
  apache::vhost { 'old.example.com': port => 80, docroot => '/srv/old', redirect_status => 'permanent', redirect_dest => 'https://ssl.example.com/' }
}
node 'apache-4' {
  class { 'apache': mpm_module => 'prefork', keepalive => 'On', timeout => 30 }
  include apache::mod::status
  include apache::mod::rewrite
  include apache::mod::headers
  include apache::mod::proxy
  include apache::mod::proxy_http
}
node 'apache-5' {
  class { 'apache': default_mods => ['alias', 'dir', 'mime'], default_vhost => false }
  apache::balancer { 'app': collect_exported => false }
  apache::balancermember { 'app-1': balancer_cluster => 'app', url => 'http://192.0.2.5:8080' }
}
node 'mysql-1' { include mysql::server }
node 'mysql-2' {
  class { 'mysql::server': root_password => 'secret', override_options => { 'mysqld' => { 'max_connections' => 512 } } }
  mysql::db { 'app': user => 'app', password => 'word', host => 'localhost', grant => ['SELECT', 'UPDATE'] }
}
node 'mysql-3' { include mysql::client }
node 'mysql-4' {
  include mysql::server
  class { 'mysql::server::backup': backupuser => 'b', backuppassword => 'p', backupdir => '/var/backups/mysql' }
}
node 'mysql-5' { class { 'mysql::bindings': python_enable => true } }
node 'postgresql-1' { class { 'postgresql::globals': version => '15' } include postgresql::server }
node 'postgresql-2' { class { 'postgresql::globals': version => '15' }
  class { 'postgresql::server': listen_addresses => '*' }
  postgresql::server::db { 'app': user => 'app', password => postgresql::postgresql_password('app', 'word') }
  postgresql::server::pg_hba_rule { 'app': type => 'host', database => 'app', user => 'app', address => '192.0.2.0/24', auth_method => 'md5' }
}
node 'postgresql-3' { class { 'postgresql::globals': version => '15' } include postgresql::client }
node 'postgresql-4' { class { 'postgresql::globals': version => '15' }
  include postgresql::server
  postgresql::server::role { 'reader': password_hash => 'x' }
  postgresql::server::config_entry { 'max_connections': value => '200' }
}
node 'haproxy-1' { include haproxy }
node 'haproxy-2' {
  include haproxy
  haproxy::listen { 'web': ipaddress => '*', ports => '80', mode => 'http', options => { 'option' => ['httplog'], 'balance' => 'roundrobin' } }
  haproxy::balancermember { 'web-1': listening_service => 'web', server_names => 'web-1', ipaddresses => '192.0.2.7', ports => '80', options => 'check' }
}
node 'haproxy-3' {
  class { 'haproxy': global_options => { 'maxconn' => '4000' }, defaults_options => { 'mode' => 'tcp' } }
  haproxy::frontend { 'in': ipaddress => '192.0.2.1', ports => '443', mode => 'tcp' }
  haproxy::backend { 'out': options => { 'balance' => 'leastconn' } }
}
node 'rabbitmq-1' { include rabbitmq }
node 'rabbitmq-2' {
  class { 'rabbitmq': port => 5673, delete_guest_user => true, config_cluster => false }
  rabbitmq_user { 'app': password => 'word' }
  rabbitmq_vhost { '/app': ensure => present }
  rabbitmq_user_permissions { 'app@/app': configure_permission => '.*', read_permission => '.*', write_permission => '.*' }
}
node 'redis-1' { include redis }
node 'redis-2' { class { 'redis': bind => ['127.0.0.1', '192.0.2.1'], port => 6380, requirepass => 'word' } }
node 'redis-3' { class { 'redis': appendonly => true, maxmemory => '1gb', save_db_to_disk => false } }
node 'concat-1' {
  concat { '/etc/motd': owner => 'root' }
  concat::fragment { 'head': target => '/etc/motd', content => "hello\n", order => '01' }
  concat::fragment { 'tail': target => '/etc/motd', content => "bye\n", order => '99' }
}
node 'concat-2' {
  ['a', 'b', 'c'].each |$n| {
    concat { "/tmp/${n}": ensure_newline => true, force => true }
    concat::fragment { "part ${n}": target => "/tmp/${n}", content => $n }
  }
}
node 'apt-1' { include apt }
node 'apt-2' {
  class { 'apt': update => { 'frequency' => 'daily' } }
  apt::source { 'site': location => 'http://deb.example.com/debian', repos => 'main', release => 'stable', key => { 'id' => '6F6B15509CF8E59E6E469F327F438280EF8D349F', 'server' => 'keys.example.com' } }
}
node 'apt-3' { include apt  apt::pin { 'backports': packages => 'x', priority => 500, release => 'bookworm-backports' }  apt::conf { 'proxy': priority => '10', content => 'Acquire::http::Proxy "http://p:1";' } }
node 'systemd-1' { include systemd }
node 'systemd-2' { include systemd  systemd::unit_file { 'app.service': content => "[Service]\nExecStart=/bin/true\n", enable => true, active => true } }
node 'systemd-3' { class { 'systemd': manage_journald => true, manage_timesyncd => true, ntp_server => ['a.example.com'] } }
node 'systemd-4' { include systemd  systemd::dropin_file { 'limits.conf': unit => 'app.service', content => "[Service]\nLimitNOFILE=9\n" }  systemd::tmpfile { 'app.conf': content => 'd /run/app' } }
node 'firewall-1' { include firewall }
node 'firewall-2' { include firewall  firewall { '100 ssh': dport => 22, proto => 'tcp', action => 'accept' }  firewall { '999 drop': proto => 'all', action => 'drop' } }
node 'firewall-3' { firewallchain { 'APP:filter:IPv4': ensure => present }  firewall { '200 app': chain => 'APP', dport => [80, 443], proto => 'tcp', action => 'accept', source => '192.0.2.0/24' } }
node 'keystone-1' { class { 'keystone::db': database_connection => 'mysql+pymysql://k:p@192.0.2.1/k' } class { 'keystone': } }
node 'keystone-2' { class { 'keystone': default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' }  class { 'keystone::bootstrap': password => 'word', admin_url => 'http://192.0.2.1:5000' } }
node 'keystone-3' { class { 'keystone::db::mysql': password => 'word' }  include mysql::server }
node 'nova-1' { class { 'nova': default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' }  include nova::conductor }
node 'nova-2' { include nova  class { 'nova::keystone::authtoken': password => 'word' }  class { 'nova::api': } }
node 'nova-3' { include nova  class { 'nova::compute': vnc_enabled => true }  class { 'nova::compute::libvirt': virt_type => 'qemu' } }
node 'nova-4' { include nova  include nova::scheduler  include nova::scheduler::filter }
node 'glance-1' { class { 'glance::api::authtoken': password => 'word' }  class { 'glance::api': }  glance::backend::multistore::file { 'files': } }
node 'glance-2' { class { 'glance::api::db': database_connection => 'mysql+pymysql://g:p@192.0.2.1/g' } }
node 'neutron-1' { class { 'neutron': core_plugin => 'ml2', default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' } }
node 'neutron-2' { include neutron  class { 'neutron::agents::dhcp': debug => true }  class { 'neutron::agents::l3': } }
node 'neutron-3' { include neutron  class { 'neutron::plugins::ml2': type_drivers => ['vxlan'], tenant_network_types => ['vxlan'] } }
node 'cinder-1' { class { 'cinder': default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' }  class { 'cinder::scheduler': } }
node 'cinder-2' { include cinder  include cinder::volume  cinder::backend::iscsi { 'lvm': target_ip_address => '192.0.2.1' } }
node 'heat-1' { class { 'heat::keystone::authtoken': password => 'word' }  class { 'heat': }  class { 'heat::engine': auth_encryption_key => '0123456789abcdef0123456789abcdef' } }
node 'horizon-1' { class { 'horizon': secret_key => 'word', allowed_hosts => ['*'] } }
node 'barbican-1' { class { 'barbican::keystone::authtoken': password => 'word' }  class { 'barbican::db': } }
node 'placement-1' { class { 'placement::keystone::authtoken': password => 'word' }  class { 'placement': }  class { 'placement::db': } }
node 'octavia-1' { class { 'octavia': default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' } }
node 'ironic-1' { class { 'ironic': default_transport_url => 'rabbit://u:p@192.0.2.1:5672/' } }
node 'aodh-1' { class { 'aodh': } }
node 'gnocchi-1' { class { 'gnocchi': }  class { 'gnocchi::db': } }
node 'designate-1' { class { 'designate': }  class { 'designate::db': } }
node 'manila-1' { class { 'manila': }  class { 'manila::scheduler': } }
node 'magnum-1' { class { 'magnum': } }
node 'mistral-1' { class { 'mistral': } }
node 'murano-1' { class { 'murano::db': } }
node 'sahara-1' { class { 'sahara': } }
node 'ceilometer-1' { class { 'ceilometer': telemetry_secret => 'word' } }
node 'cloudkitty-1' { class { 'cloudkitty': } }
node 'panko-1' { class { 'panko': } }
node 'tempest-1' { class { 'tempest': setup_venv => false, configure_images => false, configure_networks => false, install_from_source => false, package_ensure => 'present' } }
node 'swift-1' { class { 'swift': swift_hash_path_suffix => 'word' } }
node 'swift-2' { class { 'swift': swift_hash_path_suffix => 'word' }  class { 'swift::storage': storage_local_net_ip => '192.0.2.1' } }
node 'vswitch-1' { include vswitch::ovs }
node 'ovn-1' { class { 'ovn::controller': ovn_remote => 'tcp:192.0.2.1:6642', ovn_encap_ip => '192.0.2.2' } }
node 'memcached-1' { include memcached }
node 'memcached-2' { class { 'memcached': max_memory => '20%', listen_ip => '127.0.0.1', tcp_port => 11212 } }
node 'mongodb-1' { include mongodb::server }
node 'rsync-1' { include rsync::server  rsync::server::module { 'data': path => '/srv/data', require => File['/srv/data'] }  file { '/srv/data': ensure => directory } }
node 'xinetd-1' { include xinetd  xinetd::service { 'tftp': port => '69', server => '/usr/sbin/in.tftpd', protocol => 'udp', socket_type => 'dgram' } }
node 'tftp-1' { include tftp }
node 'sysctl-1' { sysctl::value { 'net.ipv4.ip_forward': value => '1' }  sysctl::value { 'vm.swappiness': value => '10' } }
node 'postfix-1' { include postfix }
node 'postfix-2' { class { 'postfix': relayhost => 'mail.example.com', myorigin => 'example.com' }  postfix::config { 'mynetworks': value => '127.0.0.0/8' } }
node 'ssh-1' { include ssh }
node 'ssh-2' { class { 'ssh::server': options => { 'PermitRootLogin' => 'no', 'Port' => [22, 2222] }, storeconfigs_enabled => false } }
node 'sssd-1' { include sssd }
node 'collectd-1' { include collectd }
node 'collectd-2' { class { 'collectd': purge => true, recurse => true, purge_config => true }  include collectd::plugin::memory }
node 'corosync-1' { class { 'corosync': enable_secauth => false, bind_address => '192.0.2.1', multicast_address => '239.1.1.2' } }
node 'etcd-1' { include etcd }
node 'zookeeper-1' { class { 'zookeeper': servers => ['192.0.2.1', '192.0.2.2'], id => '1' } }
node 'quagga-1' { include quagga }
node 'powerdns-1' { include powerdns }
node 'dns-1' { include dns }
node 'galera-1' { class { 'galera': galera_servers => ['192.0.2.1'], galera_master => 'node.example.com', root_password => 'word', status_password => 'word' } }
node 'archive-1' { include archive  archive { '/tmp/a.tgz': source => 'http://files.example.com/a.tgz', extract => true, extract_path => '/opt', creates => '/opt/a' } }
node 'vcsrepo-1' { vcsrepo { '/srv/app': ensure => present, provider => 'git', source => 'https://git.example.com/app.git', revision => 'main' } }
node 'inifile-1' { ini_setting { 'a': path => '/etc/a.ini', section => 's', setting => 'k', value => 'v' }  ini_subsetting { 'b': path => '/etc/b.ini', section => 's', setting => 'k', subsetting => 'x', value => '1' } }
node 'alternatives-1' { alternatives { 'editor': path => '/usr/bin/vim.basic' } }
node 'kmod-1' { include kmod  kmod::load { 'br_netfilter': }  kmod::blacklist { 'pcspkr': } }
node 'monit-1' { include monit }
node 'filebeat-1' { class { 'filebeat': outputs => { 'file' => { 'path' => '/tmp' } }, major_version => '7' } }
node 'openssl-1' { openssl::certificate::x509 { 'a.example.com': country => 'CH', organization => 'Example', commonname => 'a.example.com' } }
node 'staging-1' { include staging }
node 'gitolite-1' { include gitolite }
node 'ceph-1' { class { 'ceph': fsid => '066F558C-6789-4A93-AAF1-5AF1BA01A3AD', mon_host => '192.0.2.1' } }
node 'openstack-1' { include openstack_extras::repo::debian::params }
node 'oslo-1' { oslo::log { 'nova_config': debug => true }  oslo::db { 'nova_config': connection => 'sqlite:///x' } }
node 'archvsync-1' { include archvsync }
node 'posix-1' { posix_acl { '/srv/app': action => 'exact', permission => ['user::rwx', 'group::r-x', 'other::---'] } }
node 'wait-1' { wait_for { 'uptime': query => 'uptime', regex => '.*', polling_frequency => 1 } }
node 'roles-1' { include ntp  include apache  include mysql::server  include memcached }
node 'roles-2' { include haproxy  include chrony  include firewall  include systemd }
node 'roles-3' { class { 'postgresql::globals': version => '14' }  include postgresql::server  include redis  include postfix }
node 'core-2' { package { ['vim', 'git']: ensure => installed }  service { 'cron': ensure => running, enable => true, require => Package['vim'] } }
node 'core-3' { group { 'ops': gid => 900 }  user { 'ops': uid => 900, gid => 'ops', managehome => true }  exec { 'x': command => '/bin/true', unless => '/bin/false', path => ['/bin'] } }
node 'core-4' { schedule { 'night': range => '2 - 4' }  file { '/etc/a': ensure => file, schedule => 'night', audit => 'content' }  tidy { '/tmp/x': age => '1w', recurse => true }  resources { 'host': purge => true } }
node 'failing-1' { fail('on purpose') }
node 'failing-2' { include does_not_exist }
node 'failing-3' { file { '/a': ensure => file }  file { '/a': ensure => absent } }
node 'core-1' {
  cron { 'job': command => '/bin/true', hour => '3', user => 'root' }
  host { 'db.example.com': ip => '192.0.2.9', host_aliases => ['db'] }
  mount { '/srv': ensure => mounted, device => '/dev/sdb1', fstype => 'ext4' }
  mailalias { 'root': recipient => 'ops@example.com' }
  sshkey { 'a.example.com': type => 'ssh-ed25519', key => 'AAAA' }
  ssh_authorized_key { 'ops': user => 'root', type => 'ssh-ed25519', key => 'AAAA' }
}
node 'language-1' {
  $names = ['a', 'b', 'c'].map |$i, $n| { "${i}-${n}" }
  $names.each |$n| { file { "/tmp/${n}": content => epp_text($n), tag => ["t-${n}", 'all'] } }
  File <| tag == 'all' |> { mode => '0600' }
  File['/tmp/0-a'] -> File['/tmp/1-b'] ~> Exec['done']
  exec { 'done': command => '/bin/true', refreshonly => true }
}
node 'language-2' {
  user { 'app': password => Sensitive('word'), home => '/srv/app' }
  file { '/etc/deferred': content => Deferred('sprintf', ['%s', 'later']) }
  notify { 'nested': message => { 'a' => Sensitive('b'), 'c' => [1, 2.5, true, undef, default, /x/] } }
  @user { 'virtual': ensure => present }
  @@host { 'exported': ip => '192.0.2.1' }
  realize(User['virtual'])
}
node 'language-3' {
  $data = lookup('language', { 'default_value' => { 'x' => 1 }, 'merge' => 'deep' })
  notify { 'data': message => $data }
  notify { "trusted ${trusted['certname']} ${trusted['extensions']['pp_role']}": }
  notify { "facts ${facts['os']['family']} ${clientcert} ${environment}": }
  stage { 'last': require => Stage['main'] }
  class { 'motd': stage => 'last' }
}
class motd($text = "hi\n") { file { '/etc/motd': content => $text } }
function epp_text($n) { inline_epp('<%= $n %>!', { 'n' => $n }) }
node default { notify { 'unnamed': } }
