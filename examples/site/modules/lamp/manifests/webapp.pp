# A web server. It gets the database's address through `Sql`.
define lamp::webapp (
  String  $db_user,
  String  $db_password,
  String  $db_host,
  Integer $db_port,
  String  $docroot = "/var/www/${name}",
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
