{% from tpldir ~ '/map.jinja' import base with context %}

# Everything else is below this directory.
{{ base.etc }}:
  file.directory:
    - makedirs: True
    - mode: 0755
    - order: first

timezone:
  file.managed:
    - name: {{ base.etc }}/timezone
    - contents_pillar: timezone
    - mode: 0644

message of the day:
  file.managed:
    - name: {{ base.etc }}/motd
    - source: salt://base/motd.jinja
    - template: jinja
    - context:
        purpose: web and database
    - mode: 644
