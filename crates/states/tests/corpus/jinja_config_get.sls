{% for key in ['timezone', 'common:name', 'nowhere', 'os'] %}
"{{ key }} {{ salt['config.get'](key, 'default') }}":
  test.nop: []
{% endfor %}
