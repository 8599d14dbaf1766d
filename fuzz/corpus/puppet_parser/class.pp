class nginx(Integer[1, 65535] $port = 80, Optional[String] $x = undef) inherits base {
  file { "/etc/nginx.conf": ensure => file, content => epp("nginx/a.epp", { "port" => $port }), }
  ~> service { "nginx": ensure => running }
  File <<| tag == "x" and title != "y" |>> { mode => "0644" }
}
