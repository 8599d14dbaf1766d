application lamp (
  String $db_user,
  String $db_password,
  Integer[1] $web_instances = 1,
) {
  lamp::mysql { $name:
    db_user     => $db_user,
    db_password => $db_password,
    export      => Sql[$name],
  }

  range(1, $web_instances).each |$instance| {
    lamp::webapp { "${name}-${instance}":
      consume => Sql[$name],
    }
  }
}

define lamp::mysql (
  String $db_user,
  String $db_password,
  String $host     = "db.${name}.example.com",
  String $database = $name,
) {
  package { 'mysql-server': ensure => installed }
  -> service { 'mysql': ensure => running, enable => true }
}

Lamp::Mysql produces Sql {
  user     => $db_user,
  password => $db_password,
  host     => $host,
  port     => 3300 + 6,
  database => $database,
}

define lamp::webapp (
  String  $db_user,
  String  $db_password,
  String  $db_host,
  Integer $db_port,
  String  $docroot = '/var/www/html',
) {
  file { "${docroot}/index.php":
    content => @("PHP"/L),
      <?php connect("${db_host}", "${db_user}"); ?>
      | PHP
  }
}

Lamp::Webapp consumes Sql {
  db_user     => $user,
  db_password => $password,
  db_host     => $host,
  db_port     => $port,
}
