# The database. Consumers of `Sql` learn its address.
define lamp::mysql (
  String $db_user,
  String $db_password,
  String $host     = "db.${name}.example.com",
  String $database = $name,
) {
  include lamp::server
}

Lamp::Mysql produces Sql {
  user     => $db_user,
  password => $db_password,
  host     => $host,
  port     => 3300 + 6,
  database => $database,
}
