{% import_yaml 'lib/data.yml' as data %}
{% import_json 'lib/data.json' as more %}
{% load_yaml as inline %}
x: [five, six]
{% endload %}
{% for name in data.beta + more.gamma + inline.x %}
{{ name }}: test.nop
{% endfor %}
{{ data.alpha }}: test.nop
