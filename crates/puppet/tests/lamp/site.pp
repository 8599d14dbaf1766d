
site {
  lamp{'app2':
    db_user       => 'user',
    db_password   => 'secret',
    web_instances => 3,
    nodes                    => {
      Node['dev1.devco.net'] => Lamp::Mysql['app2'],
      Node['dev2.devco.net'] => Lamp::Webapp['app2-1'],
      Node['dev3.devco.net'] => Lamp::Webapp['app2-2'],
      Node['dev4.devco.net'] => Lamp::Webapp['app2-3']
    }
  }

  lamp{'app1':
    db_user       => 'user',
    db_password   => 'secret',
    web_instances => 3,
    nodes                    => {
      Node['dev1.devco.net'] => Lamp::Mysql['app1'],
      Node['dev2.devco.net'] => Lamp::Webapp['app1-1'],
      Node['dev3.devco.net'] => Lamp::Webapp['app1-2'],
      Node['dev4.devco.net'] => Lamp::Webapp['app1-3']
    }
  }
}
