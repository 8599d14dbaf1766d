{{ facts.demo_root }}/etc/balancer.conf:
  file.managed:
    - contents: |
        # one line for each web node
        server dev2.devco.net:80
        server dev3.devco.net:80
        server dev4.devco.net:80
    - require:
      - file: {{ facts.demo_root }}/etc
