{% load_yaml as loaded %}
b: 1
a: {z: 1, y: [1, 2]}
{% endload %}
{% set made = {'b': 1, 'a': {'d': 'x', 'c': "it's"}} %}
{% for value in [made | json, made | yaml, made | json(sort_keys=False), made | tojson, loaded | json,
                 loaded | yaml, loaded | yaml(False), pillar.unsorted | yaml, pillar.unsorted | json,
                 salt['slsutil.serialize']('json', made), salt['slsutil.serialize']('yaml', made),
                 {80: 1, 443: 2} | yaml, {80: 1, 443: 2} | json, made | json(indent=4),
                 ['true', '1', '', 'a: b', '2020-01-01', '12:30', '0644', 'a,b', 'no', '-', '1e3', 'x\ny'] | json] %}
{{ value | json }}:
  test.nop: []
{% endfor %}
