skipped by onlyif:
  cmd.run:
    - name: echo x
    - onlyif: 'false'
skipped by unless:
  cmd.run:
    - name: echo x
    - unless: 'true'
skipped by creates:
  cmd.run:
    - name: echo x
    - creates: /etc/passwd
runs:
  cmd.run:
    - name: echo x
    - unless: 'false'
