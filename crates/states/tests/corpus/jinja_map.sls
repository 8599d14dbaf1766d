{% from 'lib/map.jinja' import defaults with context %}
{{ defaults.pkg }}: test.nop
{% for port in defaults.ports %}
port {{ port }}: test.nop
{% endfor %}
