# Two kinds of nodes: one database, and web servers that need it.
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

  Integer[1, $web_instances].each |$instance| {
    lamp::webapp { "${name}-${instance}":
      consume => Sql[$name],
    }
  }
}
