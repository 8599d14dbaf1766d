{{ facts.demo_root }}/srv/www:
  file.directory:
    - makedirs: True

{{ facts.demo_root }}/srv/www/index.html:
  file.managed:
    - source: salt://web/index.html
    - require:
      - file: {{ facts.demo_root }}/srv/www
