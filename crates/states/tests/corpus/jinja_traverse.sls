{% set data = {'a:b': 1, 'l': [{'x': 1}, {0: 'zero'}, 'last'], 'ports': {80: 'http'}} %}
{% for path in ['a:b', 'l:x', 'l:0', 'l:2', 'l:-1', 'l:9', 'ports:80', 'nowhere:x'] %}
"{{ path }} {{ data | traverse(path, 'none') }}":
  test.nop: []
{% endfor %}
