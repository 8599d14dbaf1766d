{{ facts.demo_root }}/srv/database:
  file.directory:
    - makedirs: True
    - mode: '0750'

{{ facts.demo_root }}/srv/database/server.conf:
  file.managed:
    - source: salt://database/server.conf
    - template: jinja
    - require:
      - file: {{ facts.demo_root }}/srv/database
