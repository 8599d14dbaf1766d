include:
  - base
{% from 'base/map.jinja' import base with context %}
{% import_yaml 'database/defaults.yml' as defaults %}
{% set settings = salt['slsutil.merge'](defaults, pillar.get('database', {})) %}

database directory:
  file.directory:
    - name: {{ base.srv }}/database
    - makedirs: True
    - mode: 0700

# Created once and never shown again. Later states read it from the output.
database cluster id:
  cmd.run:
    - name: test -e {{ base.srv }}/database/cluster || printf 'cluster-%s' 42 > {{ base.srv }}/database/cluster
    - creates: {{ base.srv }}/database/cluster
    - require:
      - file: database directory

read the cluster id:
  cmd.run:
    - name: 'cat {{ base.srv }}/database/cluster'
    - stateful: False
    - unless: grep -q cluster_name {{ base.srv }}/database/database.conf
    - register: cluster
    - require:
      - cmd: database cluster id

database configuration:
  file.managed:
    - name: {{ base.srv }}/database/database.conf
    - contents: |
        {%- for key, value in settings | dictsort %}
        {{ key }} = {{ value }}
        {%- endfor %}
    - replace: False
    - require:
      - file: database directory

name the cluster:
  file.append:
    - name: {{ base.srv }}/database/database.conf
    - text: 'cluster_name = ${ cluster.stdout }'
    - require:
      - file: database configuration
    - onchanges:
      - cmd: read the cluster id
