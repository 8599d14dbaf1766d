include:
  - base
  - .sites
{% from 'base/map.jinja' import base with context %}

{% if salt['pillar.get']('web:manage_service') %}
web server:
  pkg.installed:
    - name: {{ base.web_package }}
  service.running:
    - name: {{ base.web_package }}
    - enable: True
    - require:
      - pkg: web server
    - watch:
      - file: web configuration
      - sls: web.sites
{% else %}
# If services are not managed, record the change instead.
web server reloads:
  cmd.run:
    - name: echo reloaded >> {{ base.srv }}/web/reloads
    - onchanges:
      - file: web configuration
      - sls: web.sites
    - require:
      - file: web root
{% endif %}

web root:
  file.directory:
    - name: {{ base.srv }}/web
    - makedirs: True

web configuration:
  file.managed:
    - name: {{ base.etc }}/nginx/nginx.conf
    - source: salt://web/files/nginx.conf
    - template: jinja
    - makedirs: True
    - require:
      - file: {{ base.etc }}
