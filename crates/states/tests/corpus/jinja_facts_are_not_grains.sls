{% for name in ['timezone', 'ssh', 'memory', 'networking', 'os_service_default', 'mountpoints'] %}
"{{ name }} {{ grains.get(name, 'none') }} {{ salt['grains.get'](name, 'none') }} {{ salt['config.get'](name, 'none') }}":
  test.nop: []
{% endfor %}
