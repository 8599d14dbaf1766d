{% from 'base/map.jinja' import base with context %}
{% from 'web/macros.jinja' import site with context %}

{% for name, settings in pillar.web.sites.items() %}
{{ site(name, settings, base) }}
{% endfor %}
