port: {{ 40 + 40 }}
users:
{% for name in ["a", "b"] %}  {{ name }}: {uid: {{ loop.index }}}
{% endfor %}
